"""Encodes JSON objects with one long list piece by piece.

An empty piece means that there was work, but no bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from morag.versions.encoding import Encoding

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from msgspec import Struct

_ENCODER: Final = msgspec.json.Encoder()


def listed(
    field: str, items: Iterable[Iterable[bytes]], frame: Callable[[], Struct]
) -> Iterator[bytes]:
    """The bytes of `frame()`, whose first field is `field`, with all items in that field.

    Each of `items` has the pieces of one or more complete items. `frame` is called at the end, when
    the other fields are known, and returns an empty list in the first one.
    """
    opening = f'{{"{field}":['.encode()
    has_items = yield from _joined(opening, items)
    closing = _ENCODER.encode(frame())
    assert closing.startswith(opening + b"]"), "the list is the first field, and empty"
    yield closing[len(opening) :] if has_items else closing


def ending_with_list(
    frame: Callable[[tuple[()] | None], Struct], items: Iterable[Iterable[bytes]]
) -> Iterator[bytes]:
    """The bytes of an object whose last field is a list, with all items in that field.

    `frame` is called with an empty list, and with None if there are no items.
    """
    opening = _ENCODER.encode(frame(())).removesuffix(b"]}")
    has_items = yield from _joined(opening, items)
    yield b"]}" if has_items else _ENCODER.encode(frame(None))


def encoded(
    batches: Iterable[Sequence[Any]], show: Callable[[Any], object] | None = None
) -> Iterator[tuple[bytes]]:
    """The items of each batch as one piece."""
    for batch in batches:
        yield (_ENCODER.encode(batch if show is None else [show(item) for item in batch])[1:-1],)


def joined(batches: Iterable[Sequence[bytes]]) -> Iterator[tuple[bytes]]:
    """Like `encoded`, of items that are encoded already."""
    return ((b",".join(batch),) for batch in batches)


def json_encoding(name: str, show: Callable[[Any], object] | None = None) -> Encoding[Any]:
    """The JSON of items, or of what `show` makes of them, under a name to keep it by."""

    def encode(items: Sequence[Any]) -> list[bytes]:
        shown = items if show is None else map(show, items)
        # There is no other line break: JSON escapes those in texts.
        return _ENCODER.encode_lines(shown).splitlines()

    return Encoding(name, encode)


def as_encoded(json: bytes) -> Any:
    """Stands for an item in a struct that is to be encoded: there the JSON is copied."""
    return msgspec.Raw(json)


def _joined(opening: bytes, items: Iterable[Iterable[bytes]]) -> Generator[bytes, None, bool]:
    """The opening, then the pieces of all items with commas. Returns whether there are any."""
    before = opening
    for pieces in items:
        for piece in pieces:
            if piece and before:
                yield before
                before = b""
            yield piece
        before = before or b","
    return before != opening

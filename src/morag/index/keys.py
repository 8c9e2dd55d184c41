"""Store keys, by which an index sorts.

A content key is stored as `M`, its elements and `C`, with a zero between the parts and a one
between the elements; other records, such as references, have other keys. In memory a store
key is sortable bytes with its end mark (`format/key_order.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import BadRequest
from morag.format.key_order import key_from_utf8, key_to_utf8, sortable
from morag.model.keys import ContentKey

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_CHARACTERS: Final = 500
_START: Final = b"M\0"
_FINISH: Final = b"\0C\0\0"


def store_key(key: ContentKey) -> bytes:
    return _START + sortable("\x01".join(key.elements).encode()) + _FINISH


def content_key(key: bytes) -> ContentKey | None:
    """None for a key that is not a content key."""
    path = content_path(key)
    return None if path is None else ContentKey(tuple(path.split("\x01")))


def content_path(key: bytes) -> str | None:
    """The elements of a content key with a one between them; None for another key."""
    if not (key.startswith(_START) and key.endswith(_FINISH)):
        return None
    inner = key[2:-4] if key.isascii() else key_to_utf8(key)[2:-2]
    return inner.decode()


def text_key(text: str) -> bytes:
    """The key of something other than content, such as a reference name."""
    if len(text) > MAX_CHARACTERS:
        raise BadRequest(f"A name must not be longer than {MAX_CHARACTERS} characters")
    return key_from_utf8(text.encode())


def key_text(key: bytes) -> str:
    return key_to_utf8(key).decode()


class KeyRange:
    """All keys from `lower` up to, but not including, `upper`; None means no bound."""

    __slots__ = ("lower", "upper")

    def __init__(self, lower: bytes = b"", upper: bytes | None = None) -> None:
        self.lower = lower
        self.upper = upper

    def __contains__(self, key: bytes) -> bool:
        return self.lower <= key and (self.upper is None or key < self.upper)

    def after(self, key: bytes) -> KeyRange:
        """The part of the range that follows `key`."""
        return KeyRange(max(self.lower, key + b"\0"), self.upper)

    def within(self, other: KeyRange) -> KeyRange:
        uppers = [u for u in (self.upper, other.upper) if u is not None]
        return KeyRange(max(self.lower, other.lower), min(uppers) if uppers else None)

    def around(self, other: KeyRange) -> KeyRange:
        """The range that has both, and all keys between them."""
        upper = None
        if self.upper is not None and other.upper is not None:
            upper = max(self.upper, other.upper)
        return KeyRange(min(self.lower, other.lower), upper)


ALL: Final = KeyRange()
CONTENTS: Final = KeyRange(_START, b"M\x01")


def contents_range(
    min_key: ContentKey | None = None,
    max_key: ContentKey | None = None,
    prefix: ContentKey | None = None,
    keys: Iterable[ContentKey] = (),
) -> KeyRange:
    """Both bounds are part of the range, and so is the key that is the prefix itself."""
    found = CONTENTS
    if prefix is not None:
        start = store_key(prefix)[: -len(_FINISH)]
        # The prefix is followed by a zero in the key itself, and by a one in its children.
        found = KeyRange(start + b"\0", start + b"\x02")
    if min_key is not None:
        found = found.within(KeyRange(store_key(min_key)))
    if max_key is not None:
        found = found.within(KeyRange(b"", store_key(max_key) + b"\0"))
    some = sorted(map(store_key, keys))
    if some:
        found = found.within(KeyRange(some[0], some[-1] + b"\0"))
    return found


def paths_from(first: str, last: str) -> KeyRange:
    """All keys whose path is between two texts of the same length, and the longer paths that
    start with such a text."""
    return KeyRange(_path_start(first), _path_start(last) + b"\xff")


def paths_between(first: str, last: str) -> KeyRange:
    """Like `paths_from`, without the longer paths that start with `last`."""
    # The path is followed by a zero in the key.
    return KeyRange(_path_start(first) + b"\0", _path_start(last) + b"\x01")


def text_range(prefix: str = "", start: str | None = None, end: str | None = None) -> KeyRange:
    """Names that begin with `prefix`, from `start` on, up to `end` inclusive."""
    found = ALL
    if prefix:
        lower = sortable(prefix.encode())
        found = KeyRange(lower, lower + b"\xff")
    if start is not None:
        found = found.within(KeyRange(text_key(start)))
    if end is not None:
        found = found.within(KeyRange(b"", text_key(end) + b"\0"))
    return found


def _path_start(path: str) -> bytes:
    return _START + sortable(path.encode())

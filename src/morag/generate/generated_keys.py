"""The keys of a generated history, which are fixed before the first commit."""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Final

from morag.errors import BadRequest
from morag.model.key_patterns import KeyPattern
from morag.model.keys import ContentKey, check_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from morag.generate.generate_options import GenerateOptions

_DOT_IN_ELEMENT: Final = "\x1d"
_MOST_EMPTY: Final = 1000


def keys_of(options: GenerateOptions) -> list[ContentKey]:
    """As many keys as there are tables. A pattern may generate a key several times.

    Refuses keys that no catalog could hold: a table cannot be the namespace of another.
    """
    if options.key_pattern is None:
        space = (f"create-contents-{options.run}", "contents")
        return [ContentKey((*space, str(number))) for number in range(options.tables)]
    random = Random(f"{options.seed} keys")
    texts = KeyPattern.parse(options.key_pattern).texts(random)
    keys = list(islice(_keys(texts), options.tables))
    _refuse_tables_as_namespaces(keys)
    return keys


def namespaces_of(keys: Iterable[ContentKey]) -> list[ContentKey]:
    """All ancestors of the keys, each once, parents first."""
    found = {
        ContentKey(key.elements[:length]) for key in keys for length in range(1, len(key.elements))
    }
    return sorted(found, key=lambda key: key.elements)


def key_of_path(text: str) -> ContentKey:
    """The key of a text with dots between elements, and U+001D for dots inside an element.

    Elements without a character are left out: a random text may have a dot anywhere.
    """
    elements = (part.replace(_DOT_IN_ELEMENT, ".") for part in text.split(".") if part)
    return ContentKey(tuple(elements))


def _keys(texts: Iterator[str]) -> Iterator[ContentKey]:
    empty = 0
    for text in texts:
        key = key_of_path(text)
        if key.elements:
            check_key(key)
            yield key
            continue
        empty += 1
        if empty > _MOST_EMPTY:
            raise BadRequest("The key pattern generates keys of nothing but dots")


def _refuse_tables_as_namespaces(keys: list[ContentKey]) -> None:
    tables = set(keys)
    for space in namespaces_of(keys):
        if space in tables:
            raise BadRequest(
                f"The key pattern generates the key '{space}' and keys below it, "
                "but a table cannot be a namespace"
            )

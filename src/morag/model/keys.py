"""Content keys: the names of tables, views, functions and namespaces."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_ELEMENTS: Final = 20
MAX_LENGTH: Final = 500
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")


class ContentKey(Struct, frozen=True, gc=False):
    """A path of names, such as `db.orders`. Case matters and is kept."""

    elements: tuple[str, ...]

    @classmethod
    def of(cls, *elements: str) -> ContentKey:
        return cls(elements)

    @property
    def parent(self) -> ContentKey:
        return ContentKey(self.elements[:-1])

    @property
    def name(self) -> str:
        return self.elements[-1]

    def starts_with(self, prefix: ContentKey) -> bool:
        """Whether `prefix` is this key or one of its ancestors."""
        return self.elements[: len(prefix.elements)] == prefix.elements

    def __str__(self) -> str:
        """The form that messages use: dots between elements, and nothing escaped."""
        return ".".join(self.elements)

    @property
    def escaped(self) -> str:
        """The unambiguous form: like `str`, but escaped if an element has a dot."""
        if not any("." in element for element in self.elements):
            return str(self)
        escaped = (e.replace("*", "**").replace(".", "*.") for e in self.elements)
        return "." + ".".join(escaped)

    @property
    def path(self) -> str:
        """The form of old URLs: dots between elements, and U+001D for dots inside an element."""
        return ".".join(element.replace(".", "\x1d") for element in self.elements)

    def __lt__(self, other: ContentKey) -> bool:
        return self.sort_key < other.sort_key

    @property
    def sort_key(self) -> tuple[bytes, ...]:
        """Sorts like strings in Java: by UTF-16 units, not by code points."""
        return tuple(_utf16(e) for e in self.elements)


def check_key(key: ContentKey) -> None:
    """Refuse a key that the catalog must not store. The constructor does not check anything."""
    check_key_type(key)
    if not key.elements:
        raise BadRequest("Content key must not be empty")
    check_elements("Content key", key.elements)


def check_key_type(key: object) -> None:
    """Refuse values that are not keys: they could be neither compared nor shown."""
    if not isinstance(key, ContentKey) or not isinstance(key.elements, tuple):
        raise BadRequest(
            "Content key must be a ContentKey with a tuple of texts, "
            "such as ContentKey.of('sales', 'orders')"
        )


def check_elements(what: str, elements: Sequence[str]) -> None:
    """The rules that keys and namespaces share."""
    if len(elements) > MAX_ELEMENTS:
        raise BadRequest(f"{what} too long, max allowed number of elements: {MAX_ELEMENTS}")
    try:
        joined = "".join(elements)
    except TypeError:
        raise BadRequest(f"{what} must consist of texts") from None
    is_ascii = joined.isascii()
    if len(joined) > MAX_LENGTH or (not is_ascii and len(_utf16(joined)) > 2 * MAX_LENGTH):
        raise BadRequest(f"{what} too long, max allowed length: {MAX_LENGTH}")
    if "" in elements:
        raise BadRequest(f"{what} '{_listed(elements)}' must not contain an empty element")
    if is_ascii and joined.isprintable():
        return  # True of nearly all keys, in a tenth of the time of the search below.
    found = _CONTROL.search(joined)
    if found is not None:
        limit = "the character 0x7F" if found[0] == "\x7f" else "characters less than 0x20"
        raise BadRequest(f"{what} '{_listed(elements)}' must not contain {limit}")
    if not is_ascii:
        check_unicode(what, joined)


def check_unicode(what: str, text: object) -> None:
    """Refuse half a surrogate pair: it could be neither stored nor sent."""
    if not isinstance(text, str):
        raise BadRequest(f"{what} must be a text, not {text!r}")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{what} must be valid Unicode, without lone surrogates") from None


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _listed(elements: Sequence[str]) -> str:
    return f"[{', '.join(elements)}]".encode(errors="replace").decode()

"""Query parameters. If one is repeated, the first counts, unless it is a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api.url_parsing import NoSuchPath, UrlInvalid, decoded, key_in_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.model.keys import ContentKey

_INT32: Final = 1 << 31


class Query:
    """Converts the texts that a client sent to the types that handlers need.

    A parameter that cannot be converted to a number or a known word gives 404 without a body, as in
    Nessie's framework.
    """

    __slots__ = ("_values",)

    def __init__(self, raw: str) -> None:
        self._values: dict[str, list[str]] = {}
        for part in raw.split("&") if raw else ():
            name, _, value = part.partition("=")
            try:
                pair = decoded(name.replace("+", " ")), decoded(value.replace("+", " "))
            except UrlInvalid:
                raise NoSuchPath(part) from None
            self._values.setdefault(pair[0], []).append(pair[1])

    def text(self, name: str) -> str | None:
        values = self._values.get(name)
        return values[0] if values else None

    def texts(self, name: str) -> Sequence[str]:
        return self._values.get(name, ())

    def flag(self, name: str) -> bool:
        return (self.text(name) or "").lower() == "true"

    def number(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            raise NoSuchPath(text)
        number = int(text)
        if not -_INT32 <= number < _INT32:
            raise NoSuchPath(text)
        return number

    def limit(self, name: str) -> int | None:
        """A positive number. Zero and less mean no limit."""
        number = self.number(name)
        return number if number is not None and number > 0 else None

    def fetches_all(self) -> bool:
        fetch = self.text("fetch")
        if fetch not in (None, "MINIMAL", "ALL"):
            raise NoSuchPath(str(fetch))
        return fetch == "ALL"

    def key(self, name: str) -> ContentKey | None:
        """A bound of a listing; None if the key is empty."""
        key = key_in_query(self.text(name) or "")
        return key if key.elements else None

    def keys(self, name: str) -> tuple[ContentKey, ...]:
        """Keys to look up. An empty key is accepted and never found."""
        return tuple(map(key_in_query, self.texts(name)))

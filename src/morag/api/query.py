"""Query parameters. Of a repeated one the first counts, unless it is a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api.paths import NoSuchPath, UrlInvalid, decoded, key_in_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.model.keys import ContentKey

_INT32: Final = 1 << 31


class Query:
    """Reads the texts that a client sent as what a call wants them to be.

    What is no number, and no known word, is a path that leads nowhere: 404 without a body, which
    is how the original's framework treats a parameter it cannot convert.
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
        """A page's size. Zero and less set none."""
        number = self.number(name)
        return number if number is not None and number > 0 else None

    def fetches_all(self) -> bool:
        wanted = self.text("fetch")
        if wanted not in (None, "MINIMAL", "ALL"):
            raise NoSuchPath(str(wanted))
        return wanted == "ALL"

    def key(self, name: str) -> ContentKey | None:
        """A key that bounds a listing. An empty one bounds nothing."""
        key = key_in_query(self.text(name) or "")
        return key if key.elements else None

    def keys(self, name: str) -> tuple[ContentKey, ...]:
        """Keys to look for. An empty one is no mistake here: it is never found."""
        return tuple(map(key_in_query, self.texts(name)))

"""Store URLs: which backend, where, with which options."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from msgspec import Struct

from morag.backend.read_only import ReadOnlyBackend
from morag.errors import StoreUrlInvalid
from morag.masking import masked

if TYPE_CHECKING:
    from morag.backend.base import Backend

GROUP = "morag.backends"
_SCHEME = re.compile(r"([a-z][a-z0-9+]*):(.*)", re.DOTALL)
_HOST = re.compile(r"//[^/]")


class StoreUrl(Struct, frozen=True):
    """`scheme:rest?options`, taken apart. `text` is the whole of it, as given.

    Where `read_only` is set, an engine leaves the store as it is: it makes none, and takes no lock
    that others need.
    """

    text: str
    scheme: str
    rest: str
    options: dict[str, str]
    read_only: bool = False

    @classmethod
    def parse(cls, text: str, *, read_only: bool = False) -> StoreUrl:
        match = _SCHEME.fullmatch(text)
        if match is None:
            raise StoreUrlInvalid(
                f"'{masked(text)}' is not a store URL; write for example rocksdb:./data or memory:"
            )
        scheme, rest = match.groups()
        rest, _, query = rest.partition("?")
        return cls(text, scheme, rest, dict(parse_qsl(query, keep_blank_values=True)), read_only)

    def path(self, example: str) -> Path:
        """The rest as a path on this machine, for stores that have no other place."""
        if not self.rest or _HOST.match(self.rest):
            raise StoreUrlInvalid(f"'{self}' names no path on this machine; write {example}")
        return Path(self.rest).expanduser()

    def flag(self, name: str, default: bool) -> bool:
        """An option that is `on` or `off`."""
        value = self.options.get(name, "on" if default else "off")
        if value not in ("on", "off"):
            raise StoreUrlInvalid(f"Option '{name}' of '{self}' must be 'on' or 'off'")
        return value == "on"

    def check_options(self, known: frozenset[str]) -> None:
        """Refuse a misspelt option instead of ignoring it: it may be the one that says `sync`."""
        unknown = sorted(self.options.keys() - known)
        if unknown:
            allowed = ", ".join(sorted(known)) or "none"
            raise StoreUrlInvalid(
                f"Unknown option '{unknown[0]}' in '{self}'; {self.scheme} knows: {allowed}"
            )

    def __str__(self) -> str:
        return masked(self.text)


def open_backend(url: str, *, read_only: bool = False) -> Backend:
    """The backend that is registered for the URL's scheme, opened."""
    parsed = StoreUrl.parse(url, read_only=read_only)
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    if parsed.scheme not in known:
        raise StoreUrlInvalid(
            f"No backend is installed for '{parsed.scheme}:'; installed: {', '.join(sorted(known))}"
        )
    opened: Backend = known[parsed.scheme].load()(parsed)
    return ReadOnlyBackend(opened) if read_only else opened

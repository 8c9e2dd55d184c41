"""Store URLs: the engine, the location and the options of a store."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from msgspec import Struct
from msgspec.structs import replace

from morag.backend.engines import load_opener, traits_of
from morag.backend.read_only import ReadOnlyBackend
from morag.backend.splitting import LimitedBackend, SplittingBackend
from morag.errors import StoreUrlInvalid
from morag.masking import masked

if TYPE_CHECKING:
    from morag.backend.base import Backend
    from morag.backend.engines import Traits
    from morag.config import Settings

_PLAIN = frozenset("@/?#")
_SCHEME = re.compile(r"([a-z][a-z0-9+]*):(.*)", re.DOTALL)
_HOST = re.compile(r"//[^/]")


class StoreUrl(Struct, frozen=True):
    """`scheme:rest?options`, parsed. `text` is the whole URL, as given.

    If `read_only` is set, an engine does not change the store: it creates nothing, and takes no
    lock that others need.
    """

    text: str
    scheme: str
    rest: str
    options: dict[str, str]
    repository: str = ""
    """The repository in the store: an option that all engines share."""
    read_only: bool = False

    @classmethod
    def parse(cls, text: str, *, read_only: bool = False) -> StoreUrl:
        match = _SCHEME.fullmatch(text)
        if match is None:
            raise StoreUrlInvalid(
                f"'{masked(text)}' is not a store URL; write for example rocksdb:./data or memory:"
            )
        scheme, rest = match.groups()
        if rest.startswith("//") and not _PLAIN.isdisjoint(rest[2:].rpartition("@")[0]):
            # A driver would take a part of the password for a host name, and show it.
            raise StoreUrlInvalid(
                f"'{masked(text)}' is ambiguous: in user, password and options, write @ / ? # as"
                " %40 %2F %3F %23"
            )
        rest, _, query = rest.partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        repository = options.pop("repository", "")
        return cls(text, scheme, rest, options, repository, read_only)

    def path(self, example: str) -> Path:
        """The rest as a path on this machine, for embedded stores."""
        if not self.rest or _HOST.match(self.rest):
            raise StoreUrlInvalid(f"'{self}' names no path on this machine; write {example}")
        return Path(self.rest).expanduser()

    def flag(self, name: str, default: bool) -> bool:
        """An option that is `on` or `off`."""
        value = self.options.get(name, "on" if default else "off")
        if value not in ("on", "off"):
            raise StoreUrlInvalid(f"Option '{name}' of '{self}' must be 'on' or 'off'")
        return value == "on"

    def number(self, name: str, default: float, most: float = inf) -> float:
        """An option that is a number above 0, not above `most`."""
        try:
            value = float(self.options.get(name, default))
        except ValueError:
            value = 0.0
        if not 0 < value <= most or value == inf:
            bound = "" if most == inf else f" and up to {most:g}"
            raise StoreUrlInvalid(f"Option '{name}' of '{self}' must be a number above 0{bound}")
        return value

    def check_options(self, known: frozenset[str]) -> None:
        """Refuse an unknown option: it may be a misspelt one."""
        unknown = sorted(self.options.keys() - known)
        if unknown:
            allowed = ", ".join(sorted(known)) or "none"
            raise StoreUrlInvalid(
                f"Unknown option '{unknown[0]}' in '{self}'; {self.scheme} knows: {allowed}"
            )

    @property
    def traits(self) -> Traits:
        return traits_of(self.scheme)

    def settings(self, settings: Settings) -> Settings:
        """The settings for the repository that the URL names, if it names one."""
        if self.repository in ("", settings.repository_id):
            return settings
        if settings.repository_id:
            raise StoreUrlInvalid(
                f"'{self}' and the setting repository_id ('{settings.repository_id}') name"
                " different repositories; leave out one of them"
            )
        return replace(settings, repository_id=self.repository)

    def __str__(self) -> str:
        return masked(self.text)


def open_backend(url: str, *, read_only: bool = False) -> Backend:
    """Open the store with the engine of the URL's scheme."""
    parsed = StoreUrl.parse(url, read_only=read_only)
    opened = load_opener(parsed.scheme)(parsed)
    if isinstance(opened, LimitedBackend):
        opened = SplittingBackend(opened)
    return ReadOnlyBackend(opened) if read_only else opened

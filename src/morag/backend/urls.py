"""Store URLs: which backend, where, with which options."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from msgspec import Struct
from msgspec.structs import replace

from morag.backend.read_only import ReadOnlyBackend
from morag.backend.splitting import LimitedBackend, SplittingBackend
from morag.errors import StoreUrlInvalid
from morag.masking import masked

if TYPE_CHECKING:
    from morag.backend.base import Backend
    from morag.config import Settings

GROUP = "morag.backends"
_PLAIN = frozenset("@/?#")
_SCHEME = re.compile(r"([a-z][a-z0-9+]*):(.*)", re.DOTALL)
_HOST = re.compile(r"//[^/]")
_EXTRAS = {
    "postgresql": "postgres",
    "cockroachdb": "postgres",
    "mariadb": "mysql",
    "scylla": "cassandra",
}
"""What to install for a scheme, where that has another name."""


class StoreUrl(Struct, frozen=True):
    """`scheme:rest?options`, taken apart. `text` is the whole of it, as given.

    Where `read_only` is set, an engine leaves the store as it is: it makes none, and takes no lock
    that others need.
    """

    text: str
    scheme: str
    rest: str
    options: dict[str, str]
    repository: str = ""
    """Which of the repositories in the store: an option that all engines share."""
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
            # A driver would take half of the password for a host, and show it.
            raise StoreUrlInvalid(
                f"'{masked(text)}' is not clear: in user, password and options the characters"
                " @ / ? # are written %40 %2F %3F %23"
            )
        rest, _, query = rest.partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        repository = options.pop("repository", "")
        return cls(text, scheme, rest, options, repository, read_only)

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
        """Refuse a misspelt option instead of ignoring it: it may be the one that says `sync`."""
        unknown = sorted(self.options.keys() - known)
        if unknown:
            allowed = ", ".join(sorted(known)) or "none"
            raise StoreUrlInvalid(
                f"Unknown option '{unknown[0]}' in '{self}'; {self.scheme} knows: {allowed}"
            )

    def settings(self, wishes: Settings) -> Settings:
        """The settings for the repository that the URL names, if it names one."""
        if self.repository in ("", wishes.repository_id):
            return wishes
        if wishes.repository_id:
            raise StoreUrlInvalid(
                f"'{self}' and the setting repository_id ('{wishes.repository_id}') name different "
                "repositories; leave out one of them"
            )
        return replace(wishes, repository_id=self.repository)

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
    try:
        open_engine = known[parsed.scheme].load()
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(parsed.scheme, parsed.scheme)
        raise StoreUrlInvalid(
            f"'{parsed.scheme}:' needs the package '{error.name}'; pip install 'morag[{extra}]'"
        ) from error
    opened: Backend = open_engine(parsed)
    if isinstance(opened, LimitedBackend):
        opened = SplittingBackend(opened)
    return ReadOnlyBackend(opened) if read_only else opened

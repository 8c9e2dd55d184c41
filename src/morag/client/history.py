"""The history of a commit, asked from a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.client.paging import Listing, Part
from morag.client.wire import LOG
from morag.model.names import check_hash

if TYPE_CHECKING:
    from morag.client.http import Http
    from morag.client.paging import Query
    from morag.client.places import Places
    from morag.model.listed import LogEntry
    from morag.model.refspecs import RefSpec


class ClientHistory:
    """Commits and how they follow each other."""

    def __init__(self, http: Http, places: Places) -> None:
        self._http = http
        self._places = places

    def log(
        self,
        at: str | RefSpec,
        *,
        until: str | None = None,
        with_operations: bool = False,
        filter: str = "",
        token: str | None = None,
    ) -> Listing[LogEntry]:
        """The commit and its first parents, newest first, down to the hash `until`, inclusive.

        `filter` is a CEL expression. It sees operations only together with `with_operations`.
        """
        fixed: list[tuple[str, str]] = []
        if until is not None:
            fixed.append(("limit-hash", check_hash(until)))
        if with_operations:
            fixed.append(("fetch", "ALL"))
        if filter:
            fixed.append(("filter", filter))

        def read(path: str, query: Query) -> Part[LogEntry]:
            found = self._http.get(path, LOG, [*fixed, *query])
            entries = [entry.entry(with_operations) for entry in found.log_entries]
            return Part(entries, found.following, path)  # The token names a commit already.

        path = f"{self._http.api}/trees/{{}}/history"
        return Listing(read, lambda: path.format(self._places.path(at)), token)

    def hashes(
        self, at: str | RefSpec, *, until: str | None = None, token: str | None = None
    ) -> Listing[str]:
        """Only the hashes."""
        return self.log(at, until=until, token=token).map(lambda entry: entry.meta.hash or "")

"""The history of commits on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.client.decoders import LOG, REFERENCE
from morag.client.listing import Listing, Part
from morag.client.specs import name_path, spec_of
from morag.model.names import check_hash
from morag.model.results import LogExtent

if TYPE_CHECKING:
    from morag.client.json_http import Http
    from morag.client.listing import Query
    from morag.client.ref_lookup import RefLookup
    from morag.model.refspecs import RefSpec
    from morag.model.results import LogEntry


class ClientHistory:
    """Commits along their first parents."""

    def __init__(self, http: Http, refs: RefLookup) -> None:
        self._http = http
        self._refs = refs

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
            entries = [view.entry(with_operations=with_operations) for view in found.log_entries]
            return Part(entries, found.next_token, path)  # The token names a commit already.

        path = f"{self._http.api}/trees/{{}}/history"
        return Listing(read, lambda: path.format(self._refs.path(at)), token)

    def extent(self, at: str | RefSpec) -> LogExtent:
        """The commit where the log starts, and the number of its commits.

        The API has that number only for the head of a branch or tag.
        """
        spec = spec_of(at)
        if spec.name is None or spec.hash is not None or spec.relatives:
            return LogExtent(self._refs.resolved(spec).hash, None)
        path = f"{self._http.api}/trees/{name_path(spec.name)}"
        found = self._http.get(path, REFERENCE, [("fetch", "ALL")]).reference
        return LogExtent(found.hash, 0 if found.metadata is None else found.metadata.total_commits)

    def hashes(
        self, at: str | RefSpec, *, until: str | None = None, token: str | None = None
    ) -> Listing[str]:
        """The hashes of `log`."""
        return self.log(at, until=until, token=token).map(lambda entry: entry.meta.hash or "")

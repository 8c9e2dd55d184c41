"""Branches and tags on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from morag.client.errors import NotOffered, UnexpectedAnswer
from morag.client.paging import Listing, Page, Part
from morag.client.specs import name_path
from morag.client.wire import MOVES, RECENT_CHANGES, REFERENCE, REFERENCES, WireReference
from morag.errors import BadRequest
from morag.model.names import check_new_reference_name

if TYPE_CHECKING:
    from morag.client.http import Http
    from morag.client.paging import Query
    from morag.client.places import Places
    from morag.client.results import ReferenceHistory
    from morag.model.names import ReferenceKind
    from morag.model.references import Reference, ReferenceMetadata, RefLogEntry
    from morag.model.refspecs import RefSpec

_MOST_MOVES: Final = (1 << 31) - 1


class ClientReferences:
    """The branches and tags of a repository, by their short names.

    Where a change names no expected hash, the client asks where the reference is and expects it
    there: if it moves in between, that is a conflict.
    """

    def __init__(self, http: Http, places: Places) -> None:
        self._http = http
        self._places = places

    def get(self, name: str) -> Reference:
        """The branch or tag of that name; `-` is the default branch."""
        return self._places.named(name).reference()

    def list(
        self,
        kind: ReferenceKind | None = None,
        *,
        prefix: str = "",
        filter: str = "",
        fetch_all: bool = False,
        token: str | None = None,
    ) -> Listing[Reference]:
        """All branches by name, then all tags by name.

        `filter` is a CEL expression. It sees the metadata of a reference, and the commit that it is
        at, only with `fetch_all`.
        """
        listed = self._listed(_filter(kind, prefix, filter), fetch_all, token)
        return listed.map(WireReference.reference)

    def list_with_metadata(
        self,
        kind: ReferenceKind | None = None,
        *,
        prefix: str = "",
        filter: str = "",
        token: str | None = None,
    ) -> Listing[tuple[Reference, ReferenceMetadata | None]]:
        """The same, each with where it stands; None while it has no commit."""
        listed = self._listed(_filter(kind, prefix, filter), True, token)
        return listed.map(WireReference.described)

    def create_branch(self, name: str, at: str | RefSpec | None) -> Reference:
        """A new branch at a commit, such as `main` or `main~1`; None starts from nothing."""
        return self._create("BRANCH", name, at)

    def create_tag(self, name: str, at: str | RefSpec) -> Reference:
        return self._create("TAG", name, at)

    def assign(self, name: str, to: str | RefSpec, expected: str | None = None) -> Reference:
        """Point a reference elsewhere, if it is at the expected hash."""
        path = f"{self._http.api}/trees/{self._places.expected_path(name, expected)}"
        return self._http.put(path, self._places.source(to), REFERENCE).reference.reference()

    def delete(self, name: str, expected: str | None = None) -> Reference:
        """Drop a reference that is at the expected hash. Its commits stay."""
        path = f"{self._http.api}/trees/{self._places.expected_path(name, expected)}"
        return self._http.delete(path, REFERENCE).reference.reference()

    def metadata(self, name: str) -> ReferenceMetadata | None:
        """Where the reference stands; None while it has no commit."""
        found = self._http.get(self._path(name), REFERENCE, [("fetch", "ALL")])
        return found.reference.metadata

    def history(self, name: str, scan_commits: int = 0) -> ReferenceHistory:
        """Recent heads, checked by the server; `scan_commits` more are checked below them."""
        query = [("scan-commits", str(scan_commits))] if scan_commits > 0 else []
        path = f"{self._path(name)}/recent-changes"
        return self._http.get(path, RECENT_CHANGES, query).history()

    def moves(self, limit: int = 100, token: str | None = None) -> Page[RefLogEntry]:
        """The ref-log, newest first. Only Morag's own servers keep one."""
        if limit < 1:
            raise BadRequest("A page must have room for at least one item")
        query = [("max-records", str(min(limit, _MOST_MOVES)))]
        if token:
            query.append(("page-token", token))
        try:
            found = self._http.get(f"{self._http.own}/reflog", MOVES, query)
        except UnexpectedAnswer as error:
            raise NotOffered.instead_of(
                error, "this server keeps no ref-log, which is an extra of Morag's"
            ) from error
        return Page(found.moves, found.following)

    def _listed(self, filter: str, fetch_all: bool, token: str | None) -> Listing[WireReference]:
        fixed: list[tuple[str, str]] = []
        if filter:
            fixed.append(("filter", filter))
        if fetch_all:
            fixed.append(("fetch", "ALL"))

        def read(path: str, query: Query) -> Part[WireReference]:
            found = self._http.get(path, REFERENCES, [*fixed, *query])
            return Part(found.references, found.following, path)

        return Listing(read, lambda: f"{self._http.api}/trees", token)

    def _create(self, kind: ReferenceKind, name: str, at: str | RefSpec | None) -> Reference:
        check_new_reference_name(name)
        query = [("name", name), ("type", kind)]
        path = f"{self._http.api}/trees"
        created = self._http.post(path, self._places.source(at), REFERENCE, query)
        return created.reference.reference()

    def _path(self, name: str) -> str:
        return f"{self._http.api}/trees/{name_path(name)}"


def _filter(kind: ReferenceKind | None, prefix: str, filter: str) -> str:
    """One CEL expression for all that was asked. Its texts are written as those of JSON are."""
    if kind not in (None, "BRANCH", "TAG"):
        raise BadRequest(f"Kind of references must be BRANCH or TAG, not {kind!r}")
    asked = []
    if kind is not None:
        asked.append(f"refType == '{kind}'")
    if prefix:
        asked.append(f"ref.name.startsWith({_cel_text(prefix)})")
    if not asked:
        return filter
    return " && ".join([*asked, f"({filter})"] if filter else asked)


def _cel_text(text: str) -> str:
    try:
        return msgspec.json.encode(text).decode()
    except (TypeError, ValueError):
        raise BadRequest(f"A prefix of names must be a text, not {text!r}") from None

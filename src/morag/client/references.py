"""Branches and tags on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from morag.client.decoders import REF_LOG, REFERENCE, REFERENCE_HISTORY, REFERENCES
from morag.client.errors import NotOffered, UnexpectedAnswer
from morag.client.listing import Listing, Part
from morag.client.specs import name_path
from morag.errors import BadRequest
from morag.model.names import check_new_reference_name
from morag.model.results import Page
from morag.rest.responses import ReferenceView

if TYPE_CHECKING:
    from morag.client.json_http import Http
    from morag.client.listing import Query
    from morag.client.ref_lookup import RefLookup
    from morag.model.names import ReferenceKind
    from morag.model.references import (
        Reference,
        ReferenceHistory,
        ReferenceMetadata,
        RefLogEntry,
    )
    from morag.model.refspecs import RefSpec

_MOST_MOVES: Final = (1 << 31) - 1


class ClientReferences:
    """The branches and tags of a repository, by their short names.

    For a change without an expected hash, the client first reads the head and expects that: if the
    reference moves in between, the change is a conflict.
    """

    def __init__(self, http: Http, refs: RefLookup) -> None:
        self._http = http
        self._refs = refs

    def get(self, name: str) -> Reference:
        """The branch or tag of that name; `-` is the default branch."""
        return self._refs.named(name).reference()

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

        `filter` is a CEL expression. It can use the metadata of a reference, and the commit at its
        head, only with `fetch_all`.
        """
        listed = self._listed(_filter(kind, prefix, filter), fetch_all, token)
        return listed.map(ReferenceView.reference)

    def list_with_metadata(
        self,
        kind: ReferenceKind | None = None,
        *,
        prefix: str = "",
        filter: str = "",
        token: str | None = None,
    ) -> Listing[tuple[Reference, ReferenceMetadata | None]]:
        """The same listing with metadata; None for a reference without a commit."""
        listed = self._listed(_filter(kind, prefix, filter), True, token)
        return listed.map(ReferenceView.with_metadata)

    def create_branch(self, name: str, at: str | RefSpec | None) -> Reference:
        """A new branch at a commit, such as `main` or `main~1`; None starts an empty
        history."""
        return self._create("BRANCH", name, at)

    def create_tag(self, name: str, at: str | RefSpec) -> Reference:
        return self._create("TAG", name, at)

    def assign(self, name: str, to: str | RefSpec, expected: str | None = None) -> Reference:
        """Move a reference to another commit, if it is at the expected hash."""
        path = f"{self._http.api}/trees/{self._refs.expected_path(name, expected)}"
        return self._http.put(path, self._refs.source(to), REFERENCE).reference.reference()

    def delete(self, name: str, expected: str | None = None) -> Reference:
        """Drop a reference that is at the expected hash. Its commits stay."""
        path = f"{self._http.api}/trees/{self._refs.expected_path(name, expected)}"
        return self._http.delete(path, REFERENCE).reference.reference()

    def metadata(self, name: str) -> ReferenceMetadata | None:
        """The head, and the distance from the default branch; None while there is no commit."""
        found = self._http.get(self._path(name), REFERENCE, [("fetch", "ALL")])
        return found.reference.metadata

    def history(self, name: str, scan_commits: int = 0) -> ReferenceHistory:
        """Recent heads, checked by the server, which also checks `scan_commits` commits below."""
        query = [("scan-commits", str(scan_commits))] if scan_commits > 0 else []
        path = f"{self._path(name)}/recent-changes"
        return self._http.get(path, REFERENCE_HISTORY, query)

    def moves(self, limit: int = 100, token: str | None = None) -> Page[RefLogEntry]:
        """The ref-log, newest first. Only Morag's servers have one."""
        if limit < 1:
            raise BadRequest("A page must have room for at least one item")
        query = [("max-records", str(min(limit, _MOST_MOVES)))]
        if token:
            query.append(("page-token", token))
        try:
            found = self._http.get(f"{self._http.own}/reflog", REF_LOG, query)
        except UnexpectedAnswer as error:
            raise NotOffered.instead_of(
                error, "this server keeps no ref-log: only Morag does"
            ) from error
        return Page(found.moves, found.next_token)

    def _listed(self, filter: str, fetch_all: bool, token: str | None) -> Listing[ReferenceView]:
        fixed: list[tuple[str, str]] = []
        if filter:
            fixed.append(("filter", filter))
        if fetch_all:
            fixed.append(("fetch", "ALL"))

        def read(path: str, query: Query) -> Part[ReferenceView]:
            found = self._http.get(path, REFERENCES, [*fixed, *query])
            return Part(found.references, found.next_token, path)

        return Listing(read, lambda: f"{self._http.api}/trees", token)

    def _create(self, kind: ReferenceKind, name: str, at: str | RefSpec | None) -> Reference:
        check_new_reference_name(name)
        query = [("name", name), ("type", kind)]
        path = f"{self._http.api}/trees"
        created = self._http.post(path, self._refs.source(at), REFERENCE, query)
        return created.reference.reference()

    def _path(self, name: str) -> str:
        return f"{self._http.api}/trees/{name_path(name)}"


def _filter(kind: ReferenceKind | None, prefix: str, filter: str) -> str:
    """One CEL expression for all three. CEL accepts the string literals of JSON."""
    if kind not in (None, "BRANCH", "TAG"):
        raise BadRequest(f"Kind of references must be BRANCH or TAG, not {kind!r}")
    tests = []
    if kind is not None:
        tests.append(f"refType == '{kind}'")
    if prefix:
        tests.append(f"ref.name.startsWith({_cel_text(prefix)})")
    if not tests:
        return filter
    return " && ".join([*tests, f"({filter})"] if filter else tests)


def _cel_text(text: str) -> str:
    try:
        return msgspec.json.encode(text).decode()
    except (TypeError, ValueError):
        raise BadRequest(f"A prefix of names must be a text, not {text!r}") from None

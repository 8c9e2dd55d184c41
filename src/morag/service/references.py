"""Branches and tags, as the REST APIs list, describe and change them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import BadRequest, ReferenceNotFound
from morag.model.meta import texts_length
from morag.model.names import check_new_reference_name
from morag.model.refspecs import RefSpec
from morag.rest.responses import ReferenceView
from morag.service.paging import (
    USUAL_BYTES,
    WHOLE_CPU_SECONDS,
    Filled,
    Found,
    encoded_items,
    in_batches,
)
from morag.service.ref_resolution import DETACHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from morag.model.names import ReferenceKind
    from morag.model.references import Reference, ReferenceHistory, RefLogEntry
    from morag.model.results import Page
    from morag.service.paging import Items, Paging
    from morag.service.ref_resolution import RefResolution, RequestedRef
    from morag.versions.encoding import Encoding
    from morag.versions.reference_lane import ReferenceRequest
    from morag.versions.repository import Repository
    from morag.versions.tickets import Spawn, Ticket


_DESCRIBED_AT_ONCE: Final = 10  # Metadata needs a walk to the merge base.
_MOST_MOVES: Final = 1000
"""The limit of a page of the ref-log, which is read and encoded at once."""


class References:
    def __init__(
        self, repository: Repository, refs: RefResolution, cpu_seconds: Callable[[], float]
    ) -> None:
        self._repository = repository
        self._known = repository.references
        self._refs = refs
        self._cpu_seconds = cpu_seconds

    def get(self, name: str, *, fetch_all: bool = False) -> ReferenceView:
        reference = self._known.get(name)
        return self._described(reference, fetch_all)

    def list(self, paging: Paging, *, fetch_all: bool, filter: str | None) -> Items[ReferenceView]:
        _check_token(paging)
        known = self._known.list(token=paging.token)  # A bad token is reported before a bad filter.
        wanted = None
        if filter:
            # Imported here: the CEL library is slow to load, and most servers never need it.
            from morag.service.filters import reference_filter

            keep = reference_filter(filter)

            def wanted(reference: Reference) -> bool:
                return keep(reference, self._described(reference, fetch_all).metadata)

        def fill(references: Sequence[Reference]) -> Iterator[Sequence[ReferenceView]]:
            described = (self._described(reference, fetch_all) for reference in references)
            if not fetch_all:
                return iter((list(described),))
            return in_batches(described, _size_of, _DESCRIBED_AT_ONCE)

        found = Found(known, paging, self._cpu_seconds, wanted=wanted, repeatable=False)
        return Filled(found, fill)

    def encoded_list(self, paging: Paging, encoding: Encoding[Reference]) -> Items[bytes]:
        """Like `list` without metadata and filter, encoded."""
        _check_token(paging)
        known = self._known.encoded_list(encoding, paging.token)
        found = Found(known, paging, self._cpu_seconds, repeatable=False)
        return encoded_items(found)

    def creation(self, kind: ReferenceKind, name: str, source: RequestedRef) -> ReferenceRequest:
        """Create a reference at a commit, which need not be on the reference in `source`."""
        check_new_reference_name(name)
        at = self._refs.named_commit(source, label="Target hash")
        return self._known.creation(kind, name, RefSpec(None, at.hash))

    def assign(
        self, kind: ReferenceKind | None, target: RequestedRef, to: RequestedRef
    ) -> Reference:
        old = self._refs.named_commit(target, role="Assignment target", allowed=("BRANCH", "TAG"))
        new = self._refs.named_commit(to, label="Target hash")
        _check_kind(kind, old.kind, old.name)
        return self._known.assign(old.name, RefSpec(None, new.hash), old.hash)

    def deletion(self, kind: ReferenceKind | None, target: RequestedRef) -> ReferenceRequest:
        name = target.name or self._repository.default_branch
        if name == DETACHED:
            raise ReferenceNotFound.named(name)
        existing = self._known.get(name)
        _check_kind(kind, existing.type, name)
        self._known.check_deletable(existing.type, name)
        return self._known.deletion(existing, self._refs.expected_hash(target))

    def start(
        self, request: ReferenceRequest, spawn: Spawn, finished: Callable[[Ticket], None]
    ) -> None:
        """Carry out a creation or a deletion, without waiting for it."""
        self._known.start(request, spawn, finished)

    def history(self, name: str, scan_commits: int) -> Iterator[ReferenceHistory | None]:
        """Recent heads, checked, as well as `scan_commits` commits below. Yields None after each
        step but the last. Raises BadRequest if there is too much work for one response."""
        seconds, started = 0.0, self._cpu_seconds()
        for found in self._known.history_in_steps(name, scan_commits):
            seconds += self._cpu_seconds() - started
            if found is not None:
                yield found
            elif seconds > WHOLE_CPU_SECONDS:
                raise BadRequest(
                    "There is too much to check: one response may take at most"
                    f" {WHOLE_CPU_SECONDS:.0f} seconds of work; request fewer 'scan-commits'"
                )
            else:
                yield None
            started = self._cpu_seconds()  # The next step may be in another thread.

    def moves(self, limit: int, token: str | None) -> Page[RefLogEntry]:
        """The moves of references, newest first."""
        return self._repository.references.moves(min(limit, _MOST_MOVES), token)

    def _described(self, reference: Reference, fetch_all: bool) -> ReferenceView:
        metadata = self._known.metadata(reference) if fetch_all else None
        return ReferenceView(reference.type, reference.hash, reference.name, metadata)


def _check_token(paging: Paging) -> None:
    if paging.token == "":
        raise BadRequest("Empty key elements are not allowed")


def _size_of(found: ReferenceView) -> int:
    return USUAL_BYTES + (0 if found.metadata is None else texts_length(found.metadata.head))


def _check_kind(expected: ReferenceKind | None, found: str, name: str) -> None:
    if expected is not None and expected != found:
        shown = "BranchName" if found == "BRANCH" else "TagName"  # Nessie's words.
        raise BadRequest(
            f"Expected reference type {expected} does not match existing reference "
            f"{shown}{{name={name}}}"
        )

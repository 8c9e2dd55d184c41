"""Branches and tags, as the REST APIs speak of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import BadRequest, ReferenceNotFound
from morag.logic.consistency import Consistency
from morag.model.meta import CommitMeta, texts_length
from morag.model.names import check_new_reference_name
from morag.model.references import Reference, ReferenceMetadata
from morag.model.refspecs import RefSpec
from morag.service.paging import USUAL_BYTES, WHOLE_CPU_SECONDS, Filled, Found, in_batches
from morag.service.places import DETACHED
from morag.versions.metas import meta_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from morag.logic.consistency import CommitStatus
    from morag.model.names import ReferenceKind
    from morag.model.references import RefLogEntry
    from morag.service.paging import Items, Paging
    from morag.service.places import Asked, Places
    from morag.versions.listing import Page
    from morag.versions.repository import Repository


_DESCRIBED_AT_ONCE: Final = 10  # To describe a reference takes a walk to its merge base.
_MOST_MOVES: Final = 1000
"""Lines of the ref-log on a page, which is found and encoded in one go."""


class Described(Struct, frozen=True):
    """A reference, and if it was asked for and has a commit, where it stands."""

    reference: Reference
    metadata: ReferenceMetadata | None = None


class CommitState(Struct, frozen=True, rename="camel"):
    """A commit that a reference points to, or did, and whether all of it is there."""

    commit_hash: str
    commit_consistency: Consistency
    meta: CommitMeta | None


class Heads(Struct, frozen=True):
    """The head of a reference and the heads before it."""

    reference: Reference
    current: CommitState
    previous: tuple[CommitState, ...]
    log: Consistency


class References:
    def __init__(
        self, repository: Repository, places: Places, cpu_seconds: Callable[[], float]
    ) -> None:
        self._repository = repository
        self._known = repository.references
        self._places = places
        self._cpu_seconds = cpu_seconds

    def get(self, name: str, *, fetch_all: bool = False) -> Described:
        reference = self._known.get(name)
        return self._described(reference, fetch_all)

    def list(self, paging: Paging, *, fetch_all: bool, filter: str | None) -> Items[Described]:
        if paging.token == "":
            raise BadRequest("Empty key elements are not allowed")
        known = self._known.list(token=paging.token)  # A bad token is reported before a bad filter.
        wanted = None
        if filter:
            # Not at the top: the CEL library takes time to load, which most starts can spare.
            from morag.service.filters import reference_filter

            keep = reference_filter(filter)

            def wanted(reference: Reference) -> bool:
                return keep(reference, self._described(reference, fetch_all).metadata)

        def fill(references: Sequence[Reference]) -> Iterator[Sequence[Described]]:
            described = (self._described(reference, fetch_all) for reference in references)
            if not fetch_all:
                return iter((list(described),))
            return in_batches(described, _size_of, _DESCRIBED_AT_ONCE)

        found = Found(known, paging, self._cpu_seconds, wanted=wanted, repeatable=False)
        return Filled(found, fill)

    def create(self, kind: ReferenceKind, name: str, source: Asked) -> Reference:
        """A new reference at a commit, which need not be on the reference that it is named by."""
        check_new_reference_name(name)
        place = self._places.write(source, what="Target hash")
        make = self._known.create_branch if kind == "BRANCH" else self._known.create_tag
        return make(name, RefSpec(None, place.hash))

    def assign(self, kind: ReferenceKind | None, target: Asked, to: Asked) -> Reference:
        old = self._places.write(target, who="Assignment target", allowed=("BRANCH", "TAG"))
        new = self._places.write(to, what="Target hash")
        _check_kind(kind, old.kind, old.name)
        return self._known.assign(old.name, RefSpec(None, new.hash), old.hash)

    def delete(self, kind: ReferenceKind | None, target: Asked) -> Reference:
        name = target.name or self._repository.default_branch
        if name == DETACHED:
            raise ReferenceNotFound.named(name)
        existing = self._known.get(name)
        _check_kind(kind, existing.type, name)
        self._known.check_deletable(existing.type, name)
        return self._known.delete(name, self._places.write(target).hash)

    def history(self, name: str, scan_commits: int) -> Iterator[Heads | None]:
        """Recent heads, checked; below them `scan_commits` more are. None after each step but the
        last, as long as they take no more work than one answer may."""
        seconds, started = 0.0, self._cpu_seconds()
        for found in self._known.history_in_steps(name, scan_commits):
            seconds += self._cpu_seconds() - started
            if found is not None:
                previous = tuple(map(_state, found.previous))
                yield Heads(found.reference, _state(found.current), previous, found.log)
            elif seconds > WHOLE_CPU_SECONDS:
                raise BadRequest(
                    "There is too much to check: one answer may take at most"
                    f" {WHOLE_CPU_SECONDS:.0f} seconds of work; ask for fewer 'scan-commits'"
                )
            else:
                yield None
            started = self._cpu_seconds()  # The next step may be in another thread.

    def moves(self, limit: int, token: str | None) -> Page[RefLogEntry]:
        """How references moved, newest first."""
        return self._repository.references.moves(min(limit, _MOST_MOVES), token)

    def _described(self, reference: Reference, fetch_all: bool) -> Described:
        if not fetch_all:
            return Described(reference)
        return Described(reference, self._known.metadata(reference))


def _size_of(found: Described) -> int:
    return USUAL_BYTES + (0 if found.metadata is None else texts_length(found.metadata.head))


def _state(status: CommitStatus) -> CommitState:
    meta = None if status.commit is None else meta_of(status.commit)
    return CommitState(status.id.hex(), status.consistency, meta)


def _check_kind(wanted: ReferenceKind | None, found: str, name: str) -> None:
    if wanted is not None and wanted != found:
        shown = "BranchName" if found == "BRANCH" else "TagName"  # Clients know these words.
        raise BadRequest(
            f"Expected reference type {wanted} does not match existing reference "
            f"{shown}{{name={name}}}"
        )

"""Branches and tags, as the REST APIs speak of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from morag.errors import BadRequest, ReferenceNotFound
from morag.logic.consistency import Consistency
from morag.model.meta import CommitMeta
from morag.model.names import check_new_reference_name
from morag.model.references import Reference, ReferenceMetadata
from morag.model.refspecs import RefSpec
from morag.service.places import DETACHED
from morag.versions.metas import meta_of

if TYPE_CHECKING:
    from morag.logic.consistency import CommitStatus
    from morag.model.names import ReferenceKind
    from morag.model.references import RefLogEntry
    from morag.service.places import Asked, Places
    from morag.versions.listing import Page
    from morag.versions.repository import Repository


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
    def __init__(self, repository: Repository, places: Places) -> None:
        self._repository = repository
        self._known = repository.references
        self._places = places

    def get(self, name: str, *, fetch_all: bool = False) -> Described:
        reference = self._known.get(name)
        return self._described(reference, fetch_all)

    def list(
        self, *, fetch_all: bool, filter: str | None, limit: int | None, token: str | None
    ) -> Page[Described]:
        if token == "":
            raise BadRequest("Empty key elements are not allowed")
        listing = self._known.list(token=token)  # A bad token is told before a bad filter.
        if not filter:
            page = listing.page(limit)
            return page.map(lambda one: self._described(one, fetch_all))
        # Not at the top: the CEL library takes time to load, which most starts can spare.
        from morag.service.filters import reference_filter

        wanted = reference_filter(filter)
        found: dict[str, Described] = {}

        def keep(reference: Reference) -> bool:
            described = self._described(reference, fetch_all)
            found[str(reference.name)] = described
            return wanted(reference, described.metadata)

        page = listing.where(keep).page(limit)
        return page.map(lambda one: found[str(one.name)])

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

    def history(self, name: str, scan_commits: int) -> Heads:
        """Recent heads, checked; below them `scan_commits` more are."""
        found = self._known.history(name, scan_commits)
        previous = tuple(map(_state, found.previous))
        return Heads(found.reference, _state(found.current), previous, found.log)

    def moves(self, limit: int, token: str | None) -> Page[RefLogEntry]:
        """How references moved, newest first."""
        return self._repository.references.moves(limit, token)

    def _described(self, reference: Reference, fetch_all: bool) -> Described:
        if not fetch_all:
            return Described(reference)
        return Described(reference, self._known.metadata(reference))


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

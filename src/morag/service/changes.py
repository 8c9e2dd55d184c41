"""Commits, merges and transplants: checked here, and then ready for the lane of their branch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import BadRequest, ReferenceNotFound
from morag.model.meta import check_client_meta
from morag.model.refspecs import RefSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.model.merging import MergeOptions
    from morag.model.meta import CommitMeta
    from morag.model.operations import Operation
    from morag.service.places import Asked, Place, Places
    from morag.versions.commit import CommitRequest
    from morag.versions.merge import MergeRequest
    from morag.versions.repository import Repository
    from morag.versions.transplant import TransplantRequest

_MOST_STEPS: Final = 100
"""Commits of a transplant that are named by relative parts: each of them is a walk."""


class Changes:
    def __init__(self, repository: Repository, places: Places) -> None:
        self._repository = repository
        self._places = places

    def ready_commit_request(
        self, target: Asked, operations: Sequence[Operation], meta: CommitMeta
    ) -> CommitRequest | None:
        """A commit for which the store need not be asked before it joins its lane, as for most.

        None if it must be, be it to find out which of several mistakes is told first.
        """
        place = self._places.said(target)
        if place is None:
            return None
        try:
            return self._commit(place, operations, meta)
        except (BadRequest, ReferenceNotFound):
            return None

    def commit_request(
        self, target: Asked, operations: Sequence[Operation], meta: CommitMeta
    ) -> CommitRequest:
        place = None
        try:
            place = self._target(target, "commit")
            return self._commit(place, operations, meta)
        except (BadRequest, ReferenceNotFound):
            self._tell_first(meta, place)
            raise

    def merge_request(self, source: Asked, target: Asked, options: MergeOptions) -> MergeRequest:
        place = None
        try:
            found = self._places.write(source, what="Source hash")
            place = self._target(target, "merge")
            named = RefSpec(None if found.kind == "DETACHED" else found.name, found.hash)
            return self._repository.merge_request(named, place.name, options, expected=place.hash)
        except (BadRequest, ReferenceNotFound):
            self._tell_first(options.meta, place)
            raise

    def transplant_request(
        self, source: str, hashes: Sequence[Asked], target: Asked, options: MergeOptions
    ) -> TransplantRequest:
        """The source is only looked up: commits are named by their hashes."""
        if sum(hash.has_steps for hash in hashes) > _MOST_STEPS:
            raise BadRequest(
                f"More than {_MOST_STEPS} commits to transplant are named by relative parts; name"
                " commits by their hashes alone"
            )
        self._places.write(hashes[-1], what="Hash to transplant")
        place = self._target(target, "transplant")
        found = [self._places.write(hash, what="Hash to transplant").hash for hash in hashes]
        try:
            return self._repository.transplant_request(
                found, place.name, options, source=source, expected=place.hash
            )
        except (BadRequest, ReferenceNotFound):
            self._tell_first(None, place)
            raise

    def _tell_first(self, meta: CommitMeta | None, place: Place | None) -> None:
        """Some mistakes are told before all others: those in the metadata, and then that the
        expected commit is not on the branch."""
        if meta is not None:
            check_client_meta(meta)
        if place is not None:
            self._repository.check_on(place.name, place.hash)

    def _commit(
        self, place: Place, operations: Sequence[Operation], meta: CommitMeta
    ) -> CommitRequest:
        return self._repository.commit_request(
            place.name, operations, meta, expected=place.hash, keep_types=True
        )

    def _target(self, asked: Asked, verb: str) -> Place:
        return self._places.write(asked, who=f"Reference to {verb} into", allowed=("BRANCH",))

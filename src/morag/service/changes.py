"""Commits, merges and transplants: checked here, and then ready for the lane of their branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.errors import BadRequest, ReferenceNotFound
from morag.model.meta import check_client_meta
from morag.model.operations import Delete, Put
from morag.model.refspecs import RefSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.model.content import Content
    from morag.model.keys import ContentKey
    from morag.model.merging import MergeOptions
    from morag.model.meta import CommitMeta
    from morag.model.operations import Operation
    from morag.service.places import Asked, Place, Places
    from morag.versions.commit import CommitRequest
    from morag.versions.merge import MergeRequest
    from morag.versions.repository import Repository
    from morag.versions.transplant import TransplantRequest


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
        if place is None or _replaced(operations):
            return None
        try:
            return self._repository.commit_request(
                place.name, operations, meta, expected=place.hash
            )
        except (BadRequest, ReferenceNotFound):
            return None

    def commit_request(
        self, target: Asked, operations: Sequence[Operation], meta: CommitMeta
    ) -> CommitRequest:
        place = None
        try:
            place = self._target(target, "commit")
            self._check_types(place, operations)
            return self._repository.commit_request(
                place.name, operations, meta, expected=place.hash
            )
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

    def _check_types(self, place: Place, operations: Sequence[Operation]) -> None:
        """Refuse to replace content by content of another type in one go.

        The kernel can do that, but the original refuses it, and has no word for why.
        """
        replaced = _replaced(operations)
        if not replaced:
            return
        found = self._repository.contents.get_all(RefSpec(None, place.hash), list(replaced))
        if any(type(replaced[key]) is not type(content) for key, content in found.items()):
            raise BadRequest("")

    def _target(self, asked: Asked, verb: str) -> Place:
        return self._places.write(asked, who=f"Reference to {verb} into", allowed=("BRANCH",))


def _replaced(operations: Sequence[Operation]) -> dict[ContentKey, Content]:
    """What is put where something else is deleted by the same commit."""
    deleted = {operation.key for operation in operations if isinstance(operation, Delete)}
    if not deleted:
        return {}
    return {
        operation.key: operation.content
        for operation in operations
        if isinstance(operation, Put) and operation.key in deleted
    }

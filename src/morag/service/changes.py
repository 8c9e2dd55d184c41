"""Checks commits, merges and transplants, and makes the requests for the lane of their branch.

If a request has several mistakes, the client gets one of them. Each method checks in the order in
which Nessie reports them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from morag.errors import BadRequest, ReferenceNotFound
from morag.model.meta import check_client_meta
from morag.model.refspecs import RefSpec
from morag.versions.commit import CommitRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.model.merging import MergeOptions
    from morag.model.meta import CommitMeta
    from morag.model.operations import Operation
    from morag.service.ref_resolution import NamedCommit, RefResolution, RequestedRef
    from morag.versions.merge import MergeRequest, TransplantRequest
    from morag.versions.repository import Repository

LookUp: TypeAlias = Callable[[bool], CommitRequest]
"""Reads from the store what a commit needs, and then makes its request. The argument is
`may_walk`."""

_MISTAKES: Final = (BadRequest, ReferenceNotFound)
_MOST_STEPS: Final = 100
"""The limit of commits in a transplant that have steps: each needs a walk along the history."""


class Changes:
    """The changes of branches that clients request.

    Finding the first mistake of a request may take a walk along a long history. Without `may_walk`,
    `TooFar` is raised instead.
    """

    def __init__(self, repository: Repository, refs: RefResolution) -> None:
        self._repository = repository
        self._refs = refs

    def commit_request(
        self, target: RequestedRef, operations: Sequence[Operation], meta: CommitMeta
    ) -> CommitRequest | LookUp:
        """The request, if it can be made without the store, as most can; or else the lookup for it.

        The order of mistakes: the metadata, the target, an expected commit that is not on the
        branch, the operations. So a mistake in the operations needs the store as well.
        """
        mistake: BadRequest | ReferenceNotFound | None = None
        at = self._refs.branch_without_lookup(target)
        if at is not None:
            try:
                return self._commit(at, operations, meta)
            except _MISTAKES as found:
                mistake = found.with_traceback(None)  # Its frames would keep the body in memory.
        check_client_meta(meta)  # `Repository` checks it too, but only after the target is found.

        def look_up(may_walk: bool) -> CommitRequest:
            at = self._target(target, "commit")
            with self._expected_first(at, may_walk):
                if mistake is not None:
                    raise mistake
                return self._commit(at, operations, meta)

        return look_up

    def merge_request(
        self,
        source: RequestedRef,
        target: RequestedRef,
        options: MergeOptions,
        *,
        may_walk: bool,
    ) -> MergeRequest:
        """The order of mistakes: the metadata, the source, the target, an expected commit that is
        not on the branch, the rest."""
        if options.meta is not None:  # `Repository` checks it only after both refs are found.
            check_client_meta(options.meta)
        found = self._refs.named_commit(source, label="Source hash")
        at = self._target(target, "merge")
        spec = RefSpec(None if found.kind == "DETACHED" else found.name, found.hash)
        with self._expected_first(at, may_walk):
            return self._repository.merge_request(spec, at.name, options, expected=at.hash)

    def transplant_request(
        self,
        source: str,
        hashes: Sequence[RequestedRef],
        target: RequestedRef,
        options: MergeOptions,
        *,
        may_walk: bool,
    ) -> TransplantRequest:
        """The source is looked up, but the hashes alone name the commits.

        The order of mistakes: the last hash, the target, the other hashes, an expected commit that
        is not on the branch, the rest.
        """
        if sum(hash.has_steps for hash in hashes) > _MOST_STEPS:
            raise BadRequest(
                f"More than {_MOST_STEPS} commits to transplant have steps such as ~1; use plain"
                " hashes instead"
            )
        last = self._refs.named_commit(hashes[-1], label="Hash to transplant")
        at = self._target(target, "transplant")
        others = [
            self._refs.named_commit(hash, label="Hash to transplant").hash for hash in hashes[:-1]
        ]
        with self._expected_first(at, may_walk):
            return self._repository.transplant_request(
                [*others, last.hash], at.name, options, source=source, expected=at.hash
            )

    @contextmanager
    def _expected_first(self, at: NamedCommit, may_walk: bool) -> Iterator[None]:
        """Report an expected commit that is not on the branch before mistakes in the block."""
        try:
            yield
        except _MISTAKES:
            self._repository.check_on(at.name, at.hash, may_walk=may_walk)
            raise

    def _commit(
        self, at: NamedCommit, operations: Sequence[Operation], meta: CommitMeta
    ) -> CommitRequest:
        return self._repository.commit_request(
            at.name, operations, meta, expected=at.hash, keep_types=True
        )

    def _target(self, ref: RequestedRef, verb: str) -> NamedCommit:
        return self._refs.named_commit(ref, role=f"Reference to {verb} into", allowed=("BRANCH",))

"""The kernel's face: a repository, its nouns, and the verbs that change branches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.errors import BadRequest, ReferenceNotFound
from morag.logic import history
from morag.logic.references import References
from morag.logic.reflog import RefLog
from morag.logic.repository import RepositoryDescription, initialize, read_description
from morag.logic.retry import Retries
from morag.model.keys import check_unicode
from morag.model.merging import MergeBehavior, MergeResult
from morag.model.meta import CommitMeta, check_client_meta
from morag.model.names import check_hash, check_reference_name
from morag.model.times import instant_text
from morag.persist.cache import ObjectCache
from morag.persist.ids import NO_ANCESTOR
from morag.persist.persist import Persist
from morag.versions.catalog import Catalog
from morag.versions.commit import CommitRequest, CommitResult
from morag.versions.lanes import BatchWriter, Lanes
from morag.versions.log import History
from morag.versions.merge import MergeRequest, raise_conflicts
from morag.versions.merge_rules import MergeRules
from morag.versions.metas import completed, meta_of
from morag.versions.named import NamedReferences
from morag.versions.resolve import Resolver, object_id
from morag.versions.rewriting import merged_meta, replayed_meta, squashed_meta
from morag.versions.transplant import TransplantRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from morag.backend.base import Backend, ObjId
    from morag.config import Settings
    from morag.model.merging import MergeKey
    from morag.model.operations import Operation
    from morag.model.refspecs import RefSpec
    from morag.persist.objects import Commit
    from morag.versions.world import World


class Repository:
    """Branches, tags and commits over one backend. Safe to use from many threads.

    `references`, `contents` and `history` read; `commit`, `merge` and `transplant` write. What a
    writing call returned is stored durably.
    """

    def __init__(self, backend: Backend, settings: Settings, world: World) -> None:
        self._backend = backend
        self._world = world
        self.settings = settings
        self._persist = Persist(
            backend, ObjectCache(settings.cache_bytes), settings, world.clock_nanos
        )
        retries = Retries(settings, world.monotonic, world.sleep, world.random)
        ref_log = RefLog(self._persist, world.random_bytes)
        references = References(self._persist, ref_log, retries)
        initialize(self._persist, references)
        self._resolver = Resolver(self._persist, references)
        writer = BatchWriter(self._persist, references, ref_log, retries)
        self._lanes = Lanes(writer, settings.lane_batch)
        self.default_branch = read_description(self._persist).default_branch_name

        self.references = NamedReferences(
            self._persist, references, self._resolver, ref_log, self.default_branch
        )
        self.contents = Catalog(self._persist, self._resolver)
        self.history = History(self._persist, self._resolver)

    def describe(self) -> RepositoryDescription:
        """When the repository was made, and with which default branch."""
        return read_description(self._persist)

    def commit(
        self,
        branch: str,
        operations: Sequence[Operation],
        meta: CommitMeta | str,
        *,
        expected: str | None = None,
        committer: str = "",
    ) -> CommitResult:
        """Change keys on a branch, all or nothing.

        The operations are understood as of the commit `expected`, by default the head. If others
        have committed since, that only matters for the keys they changed.
        """
        request = self.commit_request(
            branch, operations, meta, expected=expected, committer=committer
        )
        result: CommitResult = self._lanes.lane(branch).run(request)
        return result

    def commit_request(
        self,
        branch: str,
        operations: Sequence[Operation],
        meta: CommitMeta | str,
        *,
        expected: str | None = None,
        committer: str = "",
    ) -> CommitRequest:
        """A commit, checked and ready for its lane."""
        check_reference_name(branch)
        meta = CommitMeta(message=meta) if isinstance(meta, str) else meta
        check_client_meta(meta)
        check_unicode("Committer", committer)
        return CommitRequest(
            self._persist,
            branch,
            tuple(operations),  # It may be a generator, and is walked more than once.
            completed(meta, committer, self._now()),
            self._expected(branch, expected),
            self._world.new_uuid,
        )

    def merge(
        self,
        source: str | RefSpec,
        into: str,
        *,
        meta: CommitMeta | None = None,
        expected: str | None = None,
        keys: Sequence[MergeKey] = (),
        default: MergeBehavior = MergeBehavior.NORMAL,
        squash: bool = True,
        dry_run: bool = False,
        conflicts_as_result: bool = False,
        committer: str = "",
    ) -> MergeResult:
        """Bring everything that `source` changed since it parted from the branch."""
        check_reference_name(into)
        keys = tuple(keys)
        _check_resolving(keys, squash)
        check_unicode("Committer", committer)
        if meta is not None:
            check_client_meta(meta)
        found = self._resolver.resolve(source)
        target = self._expected(into, expected)
        now = self._now()
        at = self._resolver.resolve(into).hash if target is None else target.hex()
        message = f"Merged {found.name or 'DETACHED'} at {found.hash} into {into} at {at}"
        request = MergeRequest(
            self._persist,
            into,
            found.commit,
            MergeRules(keys, default),
            merged_meta(meta, message, committer, now) if squash else None,
            lambda source: replayed_meta(source, meta, committer, now),
            target,
            dry_run,
            committer,
        )
        result: MergeResult = self._lanes.lane(into).run(request)
        return result if conflicts_as_result else raise_conflicts(result)

    def transplant(
        self,
        hashes: Sequence[str],
        into: str,
        *,
        source: str = "DETACHED",
        meta: CommitMeta | None = None,
        expected: str | None = None,
        keys: Sequence[MergeKey] = (),
        default: MergeBehavior = MergeBehavior.NORMAL,
        squash: bool = False,
        dry_run: bool = False,
        conflicts_as_result: bool = False,
        committer: str = "",
    ) -> MergeResult:
        """Apply consecutive commits, oldest first, to a branch.

        `meta` overrides what a single or a squashed commit says; several keep their own words.
        """
        check_reference_name(into)
        hashes, keys = tuple(hashes), tuple(keys)
        if not hashes:
            raise BadRequest("No hashes given to transplant.")
        if meta is not None:
            check_client_meta(meta)
        _check_resolving(keys, squash)
        check_unicode("Committer", committer)
        target = self._expected(into, expected)
        sources = [self._commit_to_transplant(hash) for hash in hashes]
        now = self._now()
        squash_meta = None
        if squash:
            at = self._resolver.resolve(into).hash if target is None else target.hex()
            message = (
                f"Transplanted {len(sources)} commits from {source} at {hashes[-1]} "
                f"into {into} at {at}"
            )
            metas = [meta_of(commit) for commit in sources]
            squash_meta = squashed_meta(metas, meta, message, committer, now)
        override = meta if len(sources) == 1 else None
        request = TransplantRequest(
            self._persist,
            into,
            sources,
            MergeRules(keys, default),
            squash_meta,
            lambda source: replayed_meta(source, override, committer, now),
            target,
            dry_run,
            committer,
        )
        result: MergeResult = self._lanes.lane(into).run(request)
        return result if conflicts_as_result else raise_conflicts(result)

    def close(self) -> None:
        """Let go of the store. Everything that returned is stored already."""
        self._backend.close()

    def __enter__(self) -> Repository:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _expected(self, branch: str, hash: str | None) -> ObjId | None:
        """The expected hash as an id. One that is too short is on no branch."""
        if hash is None:
            return None
        hash = check_hash(hash)
        if len(hash) != 64:
            raise ReferenceNotFound.commit_on(branch, hash)
        return object_id(hash)

    def _commit_to_transplant(self, hash: str) -> Commit:
        commit = history.find_commit(self._persist, object_id(check_hash(hash)))
        if commit is None:
            raise ReferenceNotFound.commit(NO_ANCESTOR.hex())
        return commit

    def _now(self) -> str:
        return instant_text(self._world.clock_nanos())


def _check_resolving(keys: Sequence[MergeKey], squash: bool) -> None:
    """Resolved content stands for all that happened to a key, so it cannot be replayed."""
    if not squash and any(rule.resolved_content is not None for rule in keys):
        raise BadRequest(
            "MergeKeyBehavior.resolvedContent is only supported for squashing merge/transplant "
            "operations"
        )

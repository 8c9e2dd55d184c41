"""`Repository`, the API of the kernel: reads by noun, and the operations that change branches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from morag.backend.base import ChecksWritable
from morag.errors import BadRequest, ReferenceNotFound
from morag.format.commit_headers import meta_of
from morag.logic import history
from morag.logic.import_marker import check_not_importing
from morag.logic.reference_reader import ReferenceReader
from morag.logic.refutation import refutes
from morag.logic.repository import (
    RepositoryDescription,
    check_exists,
    initialize,
    read_description,
)
from morag.model.configs import GarbageCollectorConfig
from morag.model.keys import check_unicode
from morag.model.merging import MergeBehavior, MergeOptions, MergeResult
from morag.model.meta import CommitMeta, check_client_meta
from morag.model.names import NO_ANCESTOR_HASH, check_hash, check_reference_name
from morag.model.refspecs import RefSpec
from morag.model.times import instant_text
from morag.persist.cache import ObjectCache
from morag.persist.fitting import fitted_settings
from morag.persist.persist import Persist
from morag.versions.commit import CommitRequest, expected_commit, is_expected_near
from morag.versions.commit_contents import CommitContents
from morag.versions.commit_metas import completed, merged_meta, replayed_meta, squashed_meta
from morag.versions.configs import Configs
from morag.versions.log import History
from morag.versions.merge import MergeRequest, TransplantRequest
from morag.versions.merge_requests import MergePlan
from morag.versions.merge_rules import MergeRules
from morag.versions.ref_look_ups import RefLookUps
from morag.versions.references import NamedReferences
from morag.versions.resolve import Resolver, object_id
from morag.versions.writers import Writers, no_writers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from morag.backend.base import Backend
    from morag.config import Settings
    from morag.format.objects import Commit
    from morag.format.records import ObjId
    from morag.model.configs import RepositoryConfig
    from morag.model.merging import MergeKey
    from morag.model.operations import Operation
    from morag.model.results import CommitResult
    from morag.versions.resolve import At, Resolved
    from morag.versions.tickets import Request, Spawn, Ticket
    from morag.versions.world import World


class Repository:
    """Branches, tags and commits over one backend. Safe to use from many threads.

    `references`, `contents` and `history` read; `commit`, `merge` and `transplant` write. When a
    write returns, it is stored durably. On a read-only backend no writers are created, and writes
    raise `StoreReadOnly`.
    """

    def __init__(self, backend: Backend, settings: Settings, world: World) -> None:
        self._backend = backend
        self._world = world
        self._writers: Callable[[], Writers]
        self.settings = settings = fitted_settings(settings, backend)
        self._persist = Persist(
            backend, ObjectCache(settings.cache_bytes), settings, world.clock_nanos, refutes
        )
        if self._persist.read_only:
            check_exists(self._persist)
            self._writers = no_writers
        else:
            writers = Writers.of(self._persist, settings, world)
            self._writers = lambda: writers
            initialize(self._persist, writers.references)
        references = ReferenceReader(self._persist)
        self._resolver = Resolver(self._persist, references)
        description = read_description(self._persist)
        check_not_importing(description)
        self.default_branch = description.default_branch_name

        self.references = NamedReferences(
            self._persist, references, self._resolver, self.default_branch, self._writers
        )
        self.look_ups = RefLookUps(self._persist)
        self.contents = CommitContents(self._persist, self._resolver)
        self.history = History(self._persist, self._resolver)
        self.configs = Configs(self._persist, self._writers, world.new_uuid)

    @property
    def writes_quickly(self) -> bool:
        """Whether the store can write without waiting: `spawn` may then do brief work on a loop."""
        return self._persist.writes_quickly

    def describe(self) -> RepositoryDescription:
        """The creation time of the repository and its default branch."""
        return read_description(self._persist)

    def resolve(self, at: At) -> Resolved:
        """The commit that a ref spec such as `main~2` names now."""
        return self._resolver.resolve(at)

    def repository_config(self) -> RepositoryConfig | None:
        """The configuration of garbage collection, if one is stored."""
        found = self.configs.get([GarbageCollectorConfig])
        return found[0] if found else None

    def set_repository_config(self, config: RepositoryConfig) -> RepositoryConfig | None:
        """Replace the whole configuration; returns the previous one."""
        return self.configs.update(config)

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

        The operations are based on the commit `expected`, by default the head. Later commits of
        others conflict only if they changed the same keys.
        """
        request = self.commit_request(
            branch, operations, meta, expected=expected, committer=committer
        )
        result: CommitResult = self._writers().lanes.run(request)
        return result

    def check_on(self, branch: str, hash: str, *, may_walk: bool = True) -> None:
        """Refuse a commit that is not on the branch.

        Without `may_walk`, raises `TooFar` instead of walking along a long history.
        """
        head = self._resolver.resolve(RefSpec(branch)).commit
        expected = self._expected(branch, hash)
        assert expected is not None, "a hash is expected"
        if not (may_walk or is_expected_near(self._persist, head, expected)):
            raise history.TooFar
        expected_commit(self._persist, branch, head, expected)

    def start(self, request: Request, spawn: Spawn, finished: Callable[[Ticket], None]) -> None:
        """Carry out a request of a `..._request` method without waiting; see `Lane.start`."""
        self._writers().lanes.start(request, spawn, finished)

    def commit_request(
        self,
        branch: str,
        operations: Sequence[Operation],
        meta: CommitMeta | str,
        *,
        expected: str | None = None,
        committer: str = "",
        keep_types: bool = False,
    ) -> CommitRequest:
        """A commit, checked and ready for its lane.

        With `keep_types`, content under a key that the same commit deletes must keep its type.
        """
        check_reference_name(branch)
        meta = CommitMeta(message=meta) if isinstance(meta, str) else meta
        check_client_meta(meta)
        check_unicode("Committer", committer)
        try:
            operations = tuple(operations)  # It may be a generator, and is iterated more than once.
        except TypeError:
            raise BadRequest("Operations must be a list of Put, Delete and Unchanged") from None
        return CommitRequest(
            self._persist,
            branch,
            operations,
            completed(meta, committer, self._now()),
            self._expected(branch, expected),
            self._world.new_uuid,
            keep_types=keep_types,
        )

    def merge(
        self,
        source: At,
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
        """Apply everything that `source` changed since the merge base."""
        options = MergeOptions(
            meta=meta,
            keys=tuple(keys),
            default=default,
            squash=squash,
            dry_run=dry_run,
            conflicts_as_result=conflicts_as_result,
        )
        request = self.merge_request(source, into, options, expected=expected, committer=committer)
        result: MergeResult = self._writers().lanes.run(request)
        return result

    def merge_request(
        self,
        source: At,
        into: str,
        options: MergeOptions,
        *,
        expected: str | None = None,
        committer: str = "",
    ) -> MergeRequest:
        """A merge, checked and ready for its lane."""
        _check_merge_or_transplant(into, options, committer)
        found = self._resolver.resolve(source)
        self._resolver.resolve_to_keep(found)
        target = self._expected(into, expected)
        plan = self._plan(into, options, options.meta, target, committer)
        if options.squash:
            merged = f"{found.name or 'DETACHED'} at {found.hash}"
            message = f"Merged {merged} into {into} at {self._expected_head(plan)}"
            meta = merged_meta(options.meta, message, committer, self._now())
            plan = msgspec.structs.replace(plan, squash_meta=meta)
        return MergeRequest(self._persist, plan, found.commit)

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

        `meta` overrides the metadata of a single or a squashed commit; several commits keep theirs.
        """
        options = MergeOptions(
            meta=meta,
            keys=tuple(keys),
            default=default,
            squash=squash,
            dry_run=dry_run,
            conflicts_as_result=conflicts_as_result,
        )
        request = self.transplant_request(
            hashes, into, options, source=source, expected=expected, committer=committer
        )
        result: MergeResult = self._writers().lanes.run(request)
        return result

    def transplant_request(
        self,
        hashes: Sequence[str],
        into: str,
        options: MergeOptions,
        *,
        source: str = "DETACHED",
        expected: str | None = None,
        committer: str = "",
    ) -> TransplantRequest:
        """A transplant, checked and ready for its lane."""
        hashes = tuple(hashes)
        if not hashes:
            raise BadRequest("No hashes given to transplant.")
        check_unicode("Source", source)
        _check_merge_or_transplant(into, options, committer)
        target = self._expected(into, expected)
        sources = [self._commit_to_transplant(hash) for hash in hashes]
        history.hold_commit(self._persist, sources[-1])  # The others are its ancestors.
        # Several commits keep their own messages.
        override = options.meta if len(hashes) == 1 else None
        plan = self._plan(into, options, override, target, committer)
        if options.squash:
            transplanted = f"{len(sources)} commits from {source} at {hashes[-1]}"
            message = f"Transplanted {transplanted} into {into} at {self._expected_head(plan)}"
            metas = [meta_of(commit) for commit in sources]
            meta = squashed_meta(metas, options.meta, message, committer, self._now())
            plan = msgspec.structs.replace(plan, squash_meta=meta)
        return TransplantRequest(self._persist, plan, sources)

    def check_store(self) -> None:
        """Raise the error that keeps the store from answering or writing, if there is one."""
        self.resolve(RefSpec(self.default_branch))  # Reads its newest commit, too.
        if isinstance(self._backend, ChecksWritable):
            self._backend.check_writable()

    def close(self) -> None:
        """Close the store. Every write that returned is already stored."""
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

    def _plan(
        self,
        into: str,
        options: MergeOptions,
        override: CommitMeta | None,
        expected: ObjId | None,
        committer: str,
    ) -> MergePlan:
        """The options of a merge or transplant. A squash still lacks its metadata."""
        now = self._now()
        return MergePlan(
            branch=into,
            rules=MergeRules(options.keys, options.default),
            squash_meta=None,
            replay_meta=lambda source: replayed_meta(source, override, committer, now),
            expected=expected,
            dry_run=options.dry_run,
            conflicts_as_result=options.conflicts_as_result,
            who=committer,
        )

    def _expected_head(self, plan: MergePlan) -> str:
        """The hash at which the client expects the branch, by default its head."""
        id = self._resolver.resolve(plan.branch).id if plan.expected is None else plan.expected
        return id.hex()

    def _expected(self, branch: str, hash: str | None) -> ObjId | None:
        """The expected hash as an id. A shortened hash is refused: it is on no branch."""
        if hash is None:
            return None
        hash = check_hash(hash)
        if len(hash) != 64:
            raise ReferenceNotFound.commit_on(branch, hash)
        return object_id(hash)

    def _commit_to_transplant(self, hash: str) -> Commit:
        commit = history.find_commit(self._persist, object_id(check_hash(hash)))
        if commit is None:
            raise ReferenceNotFound.commit(NO_ANCESTOR_HASH)
        return commit

    def _now(self) -> str:
        return instant_text(self._world.clock_nanos())


def _check_merge_or_transplant(into: str, options: MergeOptions, committer: str) -> None:
    """Check a merge or transplant before anything is read."""
    check_reference_name(into)
    if options.meta is not None:
        check_client_meta(options.meta)
    check_unicode("Committer", committer)

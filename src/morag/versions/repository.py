"""The kernel's face: a repository, its nouns, and the verbs that change branches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from morag.backend.base import TellsWhetherItWrites
from morag.errors import BadRequest, ReferenceNotFound
from morag.logic import history
from morag.logic.references import References
from morag.logic.reflog import RefLog
from morag.logic.refutation import refutes
from morag.logic.repository import RepositoryDescription, initialize, read_description
from morag.logic.retry import Retries
from morag.model.keys import check_unicode
from morag.model.merging import MergeBehavior, MergeOptions, MergeResult
from morag.model.meta import CommitMeta, check_client_meta
from morag.model.names import check_hash, check_reference_name
from morag.model.refspecs import RefSpec
from morag.model.times import instant_text
from morag.persist.cache import ObjectCache
from morag.persist.ids import NO_ANCESTOR
from morag.persist.persist import Persist
from morag.persist.sizes import fitted
from morag.versions.batches import BatchWriter
from morag.versions.bringing import MergeWish
from morag.versions.catalog import Catalog
from morag.versions.commit import CommitRequest, CommitResult, expected_commit
from morag.versions.configs import Configs
from morag.versions.known_heads import KnownHeads
from morag.versions.lanes import Lanes
from morag.versions.log import History
from morag.versions.merge import MergeRequest
from morag.versions.merge_rules import MergeRules
from morag.versions.metas import completed, meta_of
from morag.versions.named import NamedReferences
from morag.versions.resolve import Resolver, object_id
from morag.versions.rewriting import merged_meta, replayed_meta, squashed_meta
from morag.versions.transplant import TransplantRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from morag.backend.base import Backend, ObjId
    from morag.config import Settings
    from morag.model.merging import MergeKey
    from morag.model.operations import Operation
    from morag.persist.objects import Commit
    from morag.versions.resolve import At, Resolved
    from morag.versions.tickets import Request, Spawn, Ticket
    from morag.versions.world import World


class Repository:
    """Branches, tags and commits over one backend. Safe to use from many threads.

    `references`, `contents` and `history` read; `commit`, `merge` and `transplant` write. What a
    writing call returned is stored durably.
    """

    def __init__(self, backend: Backend, settings: Settings, world: World) -> None:
        self._backend = backend
        self._world = world
        self.settings = settings = fitted(settings, backend)
        self._persist = Persist(
            backend, ObjectCache(settings.cache_bytes), settings, world.clock_nanos, refutes
        )
        retries = Retries(settings, world.monotonic, world.sleep, world.random)
        ref_log = RefLog(self._persist, world.random_bytes)
        references = References(self._persist, ref_log, retries)
        initialize(self._persist, references)
        self._resolver = Resolver(self._persist, references)
        heads = KnownHeads(is_shared=self._persist.is_shared)
        writer = BatchWriter(self._persist, references, ref_log, retries, heads, world)
        self._lanes = Lanes(writer, settings.lane_batch, world.let_others_run)
        self.default_branch = read_description(self._persist).default_branch_name

        self.references = NamedReferences(
            self._persist, references, self._resolver, ref_log, heads, self.default_branch
        )
        self.contents = Catalog(self._persist, self._resolver)
        self.history = History(self._persist, self._resolver)
        self.configs = Configs(self._persist, references, retries, world.new_uuid)

    def describe(self) -> RepositoryDescription:
        """When the repository was made, and with which default branch."""
        return read_description(self._persist)

    def resolve(self, at: At) -> Resolved:
        """The place that a text such as `main~2` means now."""
        return self._resolver.resolve(at)

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
        result: CommitResult = self._lanes.run(request)
        return result

    def check_on(self, branch: str, hash: str) -> None:
        """Refuse a commit that is not on the branch."""
        head = self._resolver.resolve(RefSpec(branch)).commit
        expected = self._expected(branch, hash)
        assert expected is not None, "a hash is expected"
        expected_commit(self._persist, branch, head, expected)

    def start(self, request: Request, spawn: Spawn, finished: Callable[[Ticket], None]) -> None:
        """Carry out what a `..._request` method made without waiting for it; see `Lane.start`."""
        self._lanes.start(request, spawn, finished)

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

        With `keep_types`, content that takes the place of what the same commit deletes must be of
        the same type.
        """
        check_reference_name(branch)
        meta = CommitMeta(message=meta) if isinstance(meta, str) else meta
        check_client_meta(meta)
        check_unicode("Committer", committer)
        try:
            operations = tuple(operations)  # It may be a generator, and is walked more than once.
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
        """Bring everything that `source` changed since it parted from the branch."""
        options = MergeOptions(
            meta=meta,
            keys=tuple(keys),
            default=default,
            squash=squash,
            dry_run=dry_run,
            conflicts_as_result=conflicts_as_result,
        )
        request = self.merge_request(source, into, options, expected=expected, committer=committer)
        result: MergeResult = self._lanes.run(request)
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
        _check_bringing(into, options, committer)
        found = self._resolver.resolve(source)
        target = self._expected(into, expected)
        wish = self._wish(into, options, options.meta, target, committer)
        if options.squash:
            place = f"{found.name or 'DETACHED'} at {found.hash}"
            message = f"Merged {place} into {into} at {self._at(wish)}"
            made = merged_meta(options.meta, message, committer, self._now())
            wish = msgspec.structs.replace(wish, squash_meta=made)
        return MergeRequest(self._persist, wish, found.commit)

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
        result: MergeResult = self._lanes.run(request)
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
        _check_bringing(into, options, committer)
        target = self._expected(into, expected)
        sources = [self._commit_to_transplant(hash) for hash in hashes]
        override = options.meta if len(hashes) == 1 else None  # Several keep their own words.
        wish = self._wish(into, options, override, target, committer)
        if options.squash:
            place = f"{len(sources)} commits from {source} at {hashes[-1]}"
            message = f"Transplanted {place} into {into} at {self._at(wish)}"
            metas = [meta_of(commit) for commit in sources]
            made = squashed_meta(metas, options.meta, message, committer, self._now())
            wish = msgspec.structs.replace(wish, squash_meta=made)
        return TransplantRequest(self._persist, wish, sources)

    def check_store(self) -> None:
        """Raise what keeps the store from answering or from writing, if anything does."""
        self.resolve(RefSpec(self.default_branch))  # With its newest commit.
        if isinstance(self._backend, TellsWhetherItWrites):
            self._backend.check_writable()

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

    def _wish(
        self,
        into: str,
        options: MergeOptions,
        override: CommitMeta | None,
        expected: ObjId | None,
        committer: str,
    ) -> MergeWish:
        """How a merge or transplant is to be done. A squash still lacks its metadata."""
        now = self._now()
        return MergeWish(
            branch=into,
            rules=MergeRules(options.keys, options.default),
            squash_meta=None,
            replay_meta=lambda source: replayed_meta(source, override, committer, now),
            expected=expected,
            dry_run=options.dry_run,
            conflicts_as_result=options.conflicts_as_result,
            who=committer,
        )

    def _at(self, wish: MergeWish) -> str:
        """Where the client thinks that the branch is."""
        known = self._resolver.resolve(wish.branch).id if wish.expected is None else wish.expected
        return known.hex()

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


def _check_bringing(into: str, options: MergeOptions, committer: str) -> None:
    """What can be said of a merge or transplant before anything is looked up."""
    check_reference_name(into)
    if options.meta is not None:
        check_client_meta(options.meta)
    check_unicode("Committer", committer)

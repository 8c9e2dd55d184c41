"""A state machine of commits, merges, transplants and references, compared with plain dicts.

`tests.kernel.reference_model` predicts every outcome. The stores run with tiny sizes, so that
indexes spill, stripes split and join, and tails end after a few commits.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from morag.backend.urls import StoreUrl, open_backend
from morag.config import Settings
from morag.errors import BadRequest, ContentNotFound, MoragError, ReferenceConflict
from morag.logic.consistency import Consistency
from morag.model.conflicts import ConflictType
from morag.model.content import Namespace, type_name
from morag.model.merging import MergeBehavior, MergeKey
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Operation, Put, Unchanged
from morag.model.references import Reference, TagNote
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.kernel.reference_model import NOTHING, Model, Move, Plan, Refused, Removed, Rules
from tests.kernel.strategies import (
    KEYS,
    MANY_KEYS,
    NAMESPACES,
    Action,
    Intent,
    RuleIntent,
    behaviors,
    content_keys,
    histories,
    intents,
    new_content,
    relatives,
    rule_intents,
    table,
    tag_notes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from morag.backend.base import Backend
    from morag.model.keys import ContentKey
    from morag.model.merging import MergeResult
    from morag.model.references import RefLogEntry
    from morag.model.results import LogEntry
    from morag.versions.listing import Listing
    from tests.kernel.reference_model import ModelCommit

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")

UNKNOWN_HASH = "ab" * 32
MOST_REFERENCES = 7

picks = st.integers(0, 20)
pages = st.integers(1, 3)
rarely = st.sampled_from([False] * 9 + [True])
expectations = st.sampled_from(["none"] * 4 + ["head"] * 2 + ["older"] * 4 + ["foreign"])


class CatalogMachine(RuleBasedStateMachine):
    """A new repository at the URL, and its model."""

    def __init__(self, url: str = "memory:") -> None:
        super().__init__()
        self.url = url
        self.backend: Backend = open_backend(url)
        ticks, random = itertools.count(1_700_000_000_000_000_000, 1_000_000), Random(0)
        self.world = World(
            clock_nanos=lambda: next(ticks),
            random=random,
            random_bytes=random.randbytes,
            new_uuid=lambda: random.randbytes(16),
        )
        self.numbers = itertools.count(1)

    @property
    def survives_closing(self) -> bool:
        return not self.url.startswith("memory:")

    @initialize(
        namespace_validation=st.booleans(),
        cache_bytes=st.sampled_from([0, 5_000, 1_000_000]),
        parents_per_commit=st.sampled_from([1, 3]),
        max_inlined_stripes=st.sampled_from([0, 1, 3]),
        spaces=st.sampled_from([NAMESPACES, NAMESPACES[2:]]),
        wanted=histories,
    )
    def start(
        self,
        namespace_validation: bool,
        cache_bytes: int,
        parents_per_commit: int,
        max_inlined_stripes: int,
        spaces: list[ContentKey],
        wanted: list[list[Intent]],
    ) -> None:
        tiny = Settings(
            namespace_validation=namespace_validation,
            cache_bytes=cache_bytes,
            parents_per_commit=parents_per_commit,
            max_inlined_stripes=max_inlined_stripes,
            max_incremental_index_bytes=300,
            min_index_segment_bytes=200,
            max_index_segment_bytes=2_000,
        )
        self.settings = StoreUrl.parse(self.url).settings(tiny)
        self.repo = Repository(self.backend, self.settings, self.world)
        self.model = Model("main", namespace_validation)
        # Branches that share no commit can hardly conflict.
        self._commit("main", [Put(k, Namespace(elements=k.elements)) for k in spaces], None)
        self._commit("main", [Put(key, new_content(key, 2)) for key in KEYS[5:9]], None)
        for name in ("b1", "b2"):
            self.model.create("BRANCH", name, self.model.branches["main"])
            self.repo.references.create_branch(name, "main")
        note = TagNote("first", {"a": ("1",)}, b"\xff")
        self.model.create("TAG", "t1", self.model.branches["main"], note)
        self.repo.references.create_tag("t1", "main", note)
        self._commits("b2", wanted)

    def teardown(self) -> None:
        self.backend.close()

    # Writing

    @rule(branch=picks, wanted=histories)
    def commit(self, branch: int, wanted: list[list[Intent]]) -> None:
        self._commits(self._branch(branch), wanted)

    @rule(
        branch=picks,
        wanted=intents,
        asserted=st.lists(content_keys, max_size=2, unique=True),
        expected=st.just("older") | expectations,
        pick=picks,
    )
    def commit_on_old_state(
        self,
        branch: int,
        wanted: list[Intent],
        asserted: list[ContentKey],
        expected: str,
        pick: int,
    ) -> None:
        """Commit on an old state, so that the kernel has to compare it with the head."""
        name = self._branch(branch)
        hash = self._expected(name, expected, pick)
        seen = self.model.branches[name] if hash is None else hash
        operations = self._operations(wanted, seen)
        used = {operation.key for operation in operations}
        operations += [Unchanged(key) for key in asserted if key not in used]
        self._commit(name, operations, hash)

    @rule(branch=picks, low=st.integers(0, 39), count=st.integers(0, 20), delete=st.booleans())
    def commit_many_keys(self, branch: int, low: int, count: int, delete: bool) -> None:
        """Commit enough keys to spill, and to create, split, shrink, join and remove stripes."""
        name = self._branch(branch)
        state = self.model.state(self.model.branches[name])
        number = next(self.numbers)
        operations: list[Operation] = []
        for key in MANY_KEYS[low : low + count]:
            if key not in state:
                operations.append(Put(key, table(number)))
            elif delete:
                operations.append(Delete(key))
        self._commit(name, operations, None)

    def _commits(self, branch: str, wanted: list[list[Intent]]) -> None:
        for commit in wanted:
            self._commit(branch, self._operations(commit, self.model.branches[branch]), None)

    def _commit(self, branch: str, operations: Sequence[Operation], expected: str | None) -> None:
        message = f"commit {next(self.numbers)}"
        done = self._agree(
            lambda: self.model.commit(branch, operations, message, expected),
            lambda: self.repo.commit(branch, operations, message, expected=expected),
            "commit",
        )
        if done is not None:
            planned, result = done
            self.model.record(branch, "COMMIT", [planned], [result.hash], result.added)
            self._check_new(branch, 1)

    @rule(
        source=picks,
        steps=st.one_of(*[st.just([])] * 4, relatives),
        new=histories,
        branch=picks,
        new_in_target=histories,
        expected=expectations,
        pick=picks,
        wanted=rule_intents,
        default=behaviors,
        squash=st.booleans(),
        dry_run=rarely,
        as_result=st.booleans(),
        with_message=st.booleans(),
    )
    def merge(
        self,
        source: int,
        steps: list[tuple[str, int]],
        new: list[list[Intent]],
        branch: int,
        new_in_target: list[list[Intent]],
        expected: str,
        pick: int,
        wanted: list[RuleIntent],
        default: MergeBehavior,
        squash: bool,
        dry_run: bool,
        as_result: bool,
        with_message: bool,
    ) -> None:
        """Merge after new commits on both sides, which cause the conflicts."""
        into = self._target(source, branch)
        self._commits(self._branch(source), new)
        self._commits(into, new_in_target)
        spec, source_hash = self._spec(source, steps)
        base = self._merge_base(self.model.branches[into], source_hash)
        touched = sorted(self.model.diff(base or NOTHING, source_hash))
        self._merge(
            spec,
            source_hash,
            into,
            Rules([intent.rule(touched) for intent in wanted], default),
            squash,
            expected=self._expected(into, expected, pick),
            dry_run=dry_run,
            as_result=as_result,
            message=f"merge {next(self.numbers)}" if with_message and squash else None,
        )

    @rule(
        one=picks,
        new=histories,
        other=picks,
        new_in_other=histories,
        forced=st.booleans(),
        squash=st.booleans(),
        crossed=st.booleans(),
    )
    def merge_both_ways(
        self,
        one: int,
        new: list[list[Intent]],
        other: int,
        new_in_other: list[list[Intent]],
        forced: bool,
        squash: bool,
        crossed: bool,
    ) -> None:
        """Merge both ways. If crossed, the second source is the head before the first merge."""
        left, right = self._branch(one), self._target(one, other)
        self._commits(left, new)
        self._commits(right, new_in_other)
        rules = Rules(default=MergeBehavior.FORCE if forced else MergeBehavior.NORMAL)
        before = self.model.branches[right]
        self._merge(left, self.model.branches[left], right, rules, squash)
        now = before if crossed else self.model.branches[right]
        self._merge(f"@{now}", now, left, rules, squash)

    @rule(
        source=picks,
        branch=picks,
        old=picks,
        new=picks,
        half=st.booleans(),
        behavior=st.sampled_from(MergeBehavior),
        squash=st.booleans(),
        one_by_one=st.booleans(),
    )
    def merge_a_rename(
        self,
        source: int,
        branch: int,
        old: int,
        new: int,
        half: bool,
        behavior: MergeBehavior,
        squash: bool,
        one_by_one: bool,
    ) -> None:
        """Merge or transplant a rename with a rule for one of its two keys."""
        name, into = self._branch(source), self._target(source, branch)
        self._commits(name, [[Intent(Action.RENAME, old, new, 1, True)]])
        hash = self.model.branches[name]
        if hash == NOTHING or len(self._changed(hash)) != 2:
            return  # No key could be renamed.
        rules = Rules([MergeKey(sorted(self._changed(hash))[half], behavior)])
        if one_by_one:
            self._transplant([hash], into, rules, squash)
        else:
            self._merge(name, hash, into, rules, squash)

    def _merge(
        self,
        spec: str,
        source_hash: str,
        into: str,
        rules: Rules,
        squash: bool,
        *,
        expected: str | None = None,
        dry_run: bool = False,
        as_result: bool = False,
        message: str | None = None,
    ) -> None:
        head = self.model.branches[into]
        base = self._merge_base(head, source_hash)
        done = self._agree(
            lambda: _failing(
                self.model.merge(
                    source_hash,
                    into,
                    base,
                    rules=rules,
                    expected=expected,
                    squash=squash,
                    message=message,
                ),
                as_result,
            ),
            lambda: self.repo.merge(
                spec,
                into,
                meta=None if message is None else CommitMeta(message=message),
                expected=expected,
                keys=rules.keys,
                default=rules.default,
                squash=squash,
                dry_run=dry_run,
                conflicts_as_result=as_result,
            ),
            "merge",
        )
        if done is not None:
            plan, result = done
            assert result.common_ancestor == (head if source_hash == NOTHING else base)
            self._merged("MERGE", into, expected, plan, result, dry_run)

    @rule(
        source=picks,
        new=histories,
        count=st.sampled_from([1, 2, 3, 4, 0]),
        mixed=rarely,
        branch=picks,
        expected=expectations,
        pick=picks,
        wanted=rule_intents,
        default=behaviors,
        squash=st.booleans(),
        dry_run=rarely,
        as_result=st.booleans(),
    )
    def transplant(
        self,
        source: int,
        new: list[list[Intent]],
        count: int,
        mixed: bool,
        branch: int,
        expected: str,
        pick: int,
        wanted: list[RuleIntent],
        default: MergeBehavior,
        squash: bool,
        dry_run: bool,
        as_result: bool,
    ) -> None:
        into = self._target(source, branch)
        self._commits(self._branch(source), new)
        chain = self.model.chain(self._spec(source, [])[1])
        hashes = chain[pick % 3 :][:count][::-1]
        if mixed:
            hashes = [*hashes[::-1], self._commit_hash(pick)]
        touched = sorted({key for h in hashes if h != NOTHING for key in self._changed(h)})
        self._transplant(
            hashes,
            into,
            Rules([intent.rule(touched) for intent in wanted], default),
            squash,
            expected=self._expected(into, expected, pick),
            dry_run=dry_run,
            as_result=as_result,
        )

    def _transplant(
        self,
        hashes: list[str],
        into: str,
        rules: Rules,
        squash: bool,
        *,
        expected: str | None = None,
        dry_run: bool = False,
        as_result: bool = False,
    ) -> None:
        done = self._agree(
            lambda: _failing(
                self.model.transplant(hashes, into, rules=rules, expected=expected, squash=squash),
                as_result,
            ),
            lambda: self.repo.transplant(
                hashes,
                into,
                expected=expected,
                keys=rules.keys,
                default=rules.default,
                squash=squash,
                dry_run=dry_run,
                conflicts_as_result=as_result,
            ),
            "transplant",
        )
        if done is not None:
            plan, result = done
            assert result.common_ancestor is None
            self._merged("TRANSPLANT", into, expected, plan, result, dry_run)

    def _merged(
        self,
        operation: str,
        into: str,
        expected: str | None,
        plan: Plan,
        result: MergeResult,
        dry_run: bool,
    ) -> None:
        before = self.model.branches[into]
        applied = bool(plan.commits) and not dry_run
        assert result.was_applied is applied
        assert result.was_successful is not bool(plan.clashes)
        assert result.target_branch == into
        assert result.effective_target_hash == before
        assert result.expected_hash == expected
        conflicts = {d.key: d.conflict.conflict_type for d in result.details if d.conflict}
        assert conflicts.keys() == plan.clashes.keys()
        assert all(type in plan.clashes[key] for key, type in conflicts.items())
        keys = [detail.key for detail in result.details]
        assert keys == sorted(keys)
        assert set(keys) <= plan.touched
        if applied:
            entries = self.repo.history.log(into).page(len(plan.commits)).items
            hashes = [entry.meta.hash or "" for entry in entries][::-1]
            self.model.record(into, operation, plan.commits, hashes, {})
            self._check_new(into, len(hashes))
        now = None if plan.clashes else self.model.branches[into]
        # A dry run returns the resulting head only if it equals the present head.
        possible = [None, before] if dry_run and not plan.commits else [None if dry_run else now]
        assert result.resultant_target_hash in possible

    # References

    @precondition(lambda self: len(self.model.branches) < MOST_REFERENCES)
    @rule(number=st.integers(0, 9), source=picks, steps=relatives)
    def create_branch(self, number: int, source: int, steps: list[tuple[str, int]]) -> None:
        name = f"b{number}"
        spec, hash = self._spec(source, steps if source % 2 else [])
        self._agree(
            lambda: self.model.create("BRANCH", name, hash),
            lambda: self.repo.references.create_branch(name, spec),
            "create branch",
        )

    @precondition(lambda self: len(self.model.tags) < MOST_REFERENCES)
    @rule(number=st.integers(0, 9), prefix=st.sampled_from("bt"), source=picks, note=tag_notes)
    def create_tag(self, number: int, prefix: str, source: int, note: TagNote | None) -> None:
        """Create a tag, sometimes with a name that a branch may have."""
        name = f"{prefix}{number}"
        spec, hash = self._spec(source, [])
        self._agree(
            lambda: self.model.create("TAG", name, hash, note),
            lambda: self.repo.references.create_tag(name, spec, note),
            "create tag",
        )

    @rule(
        name=picks,
        source=picks,
        steps=relatives,
        expected=expectations,
        pick=picks,
        delete=st.booleans(),
    )
    def assign_or_delete(
        self,
        name: int,
        source: int,
        steps: list[tuple[str, int]],
        expected: str,
        pick: int,
        delete: bool,
    ) -> None:
        chosen = self._name(name)
        wanted = self._expected(chosen, expected, pick)
        if delete:
            self._agree(
                lambda: self.model.delete(chosen, wanted),
                lambda: self.repo.references.delete(chosen, wanted),
                "delete",
            )
        else:
            spec, hash = self._spec(source, steps)
            self._agree(
                lambda: self.model.assign(chosen, hash, wanted),
                lambda: self.repo.references.assign(chosen, spec, wanted),
                "assign",
            )

    @rule()
    def reopen(self) -> None:
        if self.survives_closing:
            self.repo.close()
            self.backend = open_backend(self.url)
        self.repo = Repository(self.backend, self.settings, self.world)

    # Reading

    @rule(
        commit=picks,
        limit=pages,
        first=st.none() | content_keys,
        last=st.none() | content_keys,
        prefix=st.none() | content_keys,
        some=st.lists(content_keys, max_size=4, unique=True),
    )
    def read_keys(
        self,
        commit: int,
        limit: int,
        first: ContentKey | None,
        last: ContentKey | None,
        prefix: ContentKey | None,
        some: list[ContentKey],
    ) -> None:
        hash = self._commit_hash(commit)
        at, contents = f"@{hash}", self.repo.contents
        state = self.model.state(hash)
        self._check_state(at, hash)
        between = [
            key
            for key in sorted(state)
            if (first is None or not key < first) and (last is None or not last < key)
        ]
        assert between == self._paged(
            limit, lambda t: contents.keys(at, min_key=first, max_key=last, token=t)
        )
        within = [key for key in sorted(state) if prefix is None or key.starts_with(prefix)]
        entries = self._paged(
            limit, lambda t: contents.entries(at, prefix=prefix, with_content=True, token=t)
        )
        assert [(e.key, e.content) for e in entries] == [(key, state[key]) for key in within]
        if some:
            found = self._paged(limit, lambda t: contents.entries(at, keys=some, token=t))
            assert [e.key for e in found] == sorted(state.keys() & set(some))
        assert contents.get_all(at, KEYS) == {key: state[key] for key in KEYS if key in state}
        for key in some:
            if key in state:
                assert contents.get(at, key) == state[key]
            else:
                with pytest.raises(ContentNotFound):
                    contents.get(at, key)

    @rule(one=picks, other=picks, limit=pages, prefix=st.none() | content_keys)
    def read_differences(self, one: int, other: int, limit: int, prefix: ContentKey | None) -> None:
        left, right = self._commit_hash(one), self._commit_hash(other)
        found = self._paged(
            limit,
            lambda t: self.repo.contents.diff(f"@{left}", f"@{right}", prefix=prefix, token=t),
        )
        assert [(d.key, (d.before, d.after)) for d in found] == [
            item
            for item in self.model.diff(left, right).items()
            if prefix is None or item[0].starts_with(prefix)
        ]

    @rule(commit=picks, other=picks, limit=pages, steps=relatives)
    def read_history(
        self, commit: int, other: int, limit: int, steps: list[tuple[str, int]]
    ) -> None:
        history = self.repo.history
        spec, hash = self._spec(commit, steps)
        chain = self.model.chain(hash)
        assert self._paged(limit, lambda t: history.hashes(spec, token=t)) == chain
        log = self._paged(limit, lambda t: history.log(spec, with_operations=True, token=t))
        assert [entry.meta.hash for entry in log] == chain
        for entry, known in zip(log, chain, strict=True):
            self._check_entry(entry, self.model.commits[known])
        until = self._commit_hash(other)
        down_to = chain[: chain.index(until) + 1] if until in chain else chain
        assert list(history.hashes(spec, until=until)) == down_to
        assert [entry.meta.hash for entry in history.log(spec, until=until)] == down_to
        self._merge_base(hash, until)
        with pytest.raises(BadRequest):
            history.hashes(f"{spec}~0")

    @rule(limit=pages)
    def read_references(self, limit: int) -> None:
        references, model = self.repo.references, self.model
        branches = [Reference("BRANCH", n, h) for n, h in sorted(model.branches.items())]
        tags = [Reference("TAG", n, h) for n, h in sorted(model.tags.items())]
        assert self._paged(limit, lambda t: references.list(token=t)) == [*branches, *tags]
        assert self._paged(limit, lambda t: references.list("TAG", token=t)) == tags
        moves: list[RefLogEntry] = []
        token = None
        while True:
            page = references.moves(limit, token)
            assert len(page.items) <= limit
            moves += page.items
            token = page.token
            if token is None:
                break
        assert [_move(entry) for entry in moves] == model.moves[::-1]

    # Invariants

    @invariant()
    def references_equal_the_model(self) -> None:
        model, references = self.model, self.repo.references
        known = [*sorted(model.branches.items()), *sorted(model.tags.items())]
        assert [(r.name, r.hash) for r in references.list()] == known
        assert [_move(entry) for entry in references.moves(2).items] == model.moves[:-3:-1]
        for name, head in known:
            self._check_metadata(name, head)
        for name, note in model.notes.items():
            assert references.note(name) == note

    @invariant()
    def branches_equal_the_model(self) -> None:
        for name, head in self.model.branches.items():
            self._check_state(name, head)
            assert list(self.repo.history.hashes(name)) == self.model.chain(head)

    # Comparing

    def _agree(
        self, predict: Callable[[], P], act: Callable[[], R], what: str
    ) -> tuple[P, R] | None:
        """Both succeed, and both results are returned; or both fail with the same error."""
        try:
            predicted = predict()
        except Refused as refused:
            event(f"{what}: conflict")
            with pytest.raises(ReferenceConflict) as raised:
                act()
            conflicts = {
                (c.key, c.conflict_type)
                for c in raised.value.conflicts
                if c.conflict_type is not ConflictType.KEY_CONFLICT
            }
            assert {key for key, _ in conflicts} == {key for key, _ in refused.clashes}
            assert conflicts <= refused.clashes
        except MoragError as expected:
            event(f"{what}: {expected.code}")
            with pytest.raises(type(expected)):
                act()
        else:
            event(f"{what}: success")
            return predicted, act()
        return None

    def _check_new(self, branch: str, count: int) -> None:
        """Check the newest commits of a branch."""
        log = self.repo.history.log(branch, with_operations=True).page(count).items
        chain = self.model.chain(self.model.branches[branch])[:count]
        assert len(log) == count
        for entry, hash in zip(log, chain, strict=True):
            self._check_entry(entry, self.model.commits[hash])
            status = self.repo.history.check(f"@{hash}")
            assert status.consistency is Consistency.COMMIT_CONSISTENT, status.findings
            assert status.commit is not None
            assert status.commit.seq == self.model.seq(hash)

    def _check_entry(self, entry: LogEntry, known: ModelCommit) -> None:
        assert entry.meta.hash == known.hash
        assert entry.parent == known.parent
        assert entry.meta.parents == (known.parent, *known.merged)
        assert known.message in (None, entry.meta.message)
        assert list(entry.operations or ()) == [
            Delete(key) if isinstance(change, Removed) else Put(key, change)
            for key, change in sorted(known.changes.items())
        ]

    def _check_metadata(self, name: str, head: str) -> None:
        found = self.repo.references.metadata(name)
        if head == NOTHING:
            assert found is None
            return
        assert found is not None
        assert found.head.hash == head
        assert found.total_commits == len(self.model.chain(head))
        counted = (found.common_ancestor, found.ahead, found.behind)
        if name in self.model.tags or name == "main":
            assert counted == (None, None, None)
            return
        main = self.model.branches["main"]
        shared = self.model.common_on_first_parents(head, main)
        below = len(self.model.chain(shared))
        ahead, behind = (len(self.model.chain(h)) - below for h in (head, main))
        assert counted == (shared, ahead, behind)

    def _check_state(self, at: str, hash: str) -> None:
        state = self.model.state(hash)
        entries = list(self.repo.contents.entries(at, with_content=True))
        assert [(e.key, e.type, e.content_id, e.content) for e in entries] == [
            (key, type_name(state[key]), state[key].id, state[key]) for key in sorted(state)
        ]
        assert list(self.repo.contents.keys(at)) == sorted(state)
        space = NAMESPACES[0]
        inside = [key for key in sorted(state) if key.starts_with(space)]
        assert list(self.repo.contents.keys(at, prefix=space)) == inside

    def _merge_base(self, one: str, other: str) -> str | None:
        found = self.repo.history.merge_base(f"@{one}", f"@{other}")
        bases = self.model.merge_bases(one, other)
        assert found in bases if bases else found is None
        return found

    def _paged(self, limit: int, listing: Callable[[str | None], Listing[T]]) -> list[T]:
        items: list[T] = []
        token = None
        while True:
            page = listing(token).page(limit)
            assert len(page.items) == limit or page.token is None
            items += page.items
            token = page.token
            if token is None:
                return items

    # Picking

    def _branch(self, pick: int) -> str:
        return _picked(sorted(self.model.branches), pick)

    def _target(self, source: int, pick: int) -> str:
        """A branch that rarely equals the source, because such a merge does nothing."""
        chosen = self._branch(source)
        others = [name for name in sorted(self.model.branches) if name != chosen]
        return _picked([*others, *others, chosen], pick)

    def _name(self, pick: int) -> str:
        """A branch or a tag, and sometimes a name that does not exist."""
        return _picked([*sorted(self.model.branches), *sorted(self.model.tags), "missing"], pick)

    def _commit_hash(self, pick: int) -> str:
        """Any commit, the newest first, or the hash of the empty history."""
        return _picked(self.model.hashes[::-1], pick)

    def _spec(self, pick: int, steps: list[tuple[str, int]]) -> tuple[str, str]:
        """A ref spec, and the hash that it resolves to."""
        names = [*sorted(self.model.branches), *sorted(self.model.tags)]
        heads = [(name, self.model.head(name)) for name in names]
        detached = [(f"@{hash}", hash) for hash in self.model.hashes[:-3:-1]]
        named = [(f"main@{hash}", hash) for hash in self.model.hashes[-1:]]
        spec, hash = _picked([*heads, *detached, *named], pick)
        written = "".join(f"{kind}{number}" for kind, number in steps)
        return spec + written, self.model.follow(hash, steps)

    def _expected(self, name: str, expectation: str, pick: int) -> str | None:
        head = self.model.branches.get(name) or self.model.tags.get(name) or NOTHING
        match expectation:
            case "head":
                return head
            case "older":
                return _picked([*self.model.chain(head), NOTHING], pick)
            case "foreign":
                return _picked([*self.model.hashes[::-1], UNKNOWN_HASH], pick)
            case _:
                return None

    def _operations(self, wanted: list[Intent], seen: str) -> list[Operation]:
        """The operations of all intents. A key rarely occurs twice: such a commit is refused."""
        state = {} if seen == UNKNOWN_HASH else self.model.state(seen)
        operations: list[Operation] = []
        used: set[ContentKey] = set()
        for intent in wanted:
            new = intent.operations(state)
            keys = {operation.key for operation in new}
            if not keys & used or intent.number == intent.first:
                operations += new
                used |= keys
        return operations

    def _changed(self, hash: str) -> Sequence[ContentKey]:
        return list(self.model.commits[hash].changes)


def _picked(choices: Sequence[T], pick: int) -> T:
    return choices[pick % len(choices)]


def _move(entry: RefLogEntry) -> Move:
    return Move(
        entry.reference.type,
        entry.reference.name or "",
        entry.operation,
        entry.hash_before,
        entry.hash_after,
        entry.commits,
    )


def _failing(plan: Plan, as_result: bool) -> Plan:
    """Raise clashes as an error, unless the client wants them in the result."""
    if plan.clashes and not as_result:
        raise Refused((key, type) for key, types in plan.clashes.items() for type in types)
    return plan


def bounded(examples: int, steps: int = 40) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=False,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )

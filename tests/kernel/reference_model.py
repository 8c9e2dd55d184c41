"""A model of the kernel in plain dicts: too slow to ship and too simple to be wrong.

Each commit has one dict with the whole catalog and the set of all its ancestors. The model takes
only hashes and new content ids from the kernel, because it cannot predict them; it counts `seq` and
everything else by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from morag.errors import BadRequest, ReferenceAlreadyExists, ReferenceNotFound
from morag.model.conflicts import ConflictType
from morag.model.content import Content, Namespace
from morag.model.keys import ContentKey
from morag.model.merging import MergeBehavior, MergeKey
from morag.model.operations import Delete, Operation, Put, Unchanged
from morag.model.references import TagNote

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

NOTHING: Final = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
"""The hash of the state before the first commit."""

State: TypeAlias = Mapping[ContentKey, Content]
Clash: TypeAlias = tuple[ContentKey | None, ConflictType]


class Removed(Struct, frozen=True):
    """The removal of a key, with the kind of content that the commit meant to remove."""

    kind: type[Content]


Changes: TypeAlias = Mapping[ContentKey, Content | Removed]
Difference: TypeAlias = tuple[Content | None, Content | Removed | None]
"""The content of a key before and after the changes of a source."""


class ModelCommit(Struct, frozen=True):
    hash: str
    parent: str
    merged: tuple[str, ...]
    seq: int
    message: str | None
    changes: Changes
    state: State
    ancestors: frozenset[str]
    """The commit itself and all commits that it descends from, through all parents."""


class Planned(Struct, frozen=True):
    """The next commit of the kernel. New content has no id yet; the message None matches any."""

    message: str | None
    changes: Changes
    state: State
    merged: tuple[str, ...] = ()


class Plan(Struct, frozen=True):
    """The expected outcome of a merge or a transplant.

    With clashes, nothing is written. A key may clash in several of the replayed commits; the kernel
    may then report any of its clashes.
    """

    commits: Sequence[Planned] = ()
    clashes: Mapping[ContentKey, frozenset[ConflictType]] = {}
    touched: frozenset[ContentKey] = frozenset()


class Move(Struct, frozen=True):
    kind: str
    name: str
    operation: str
    before: str
    after: str
    commits: int = 0


class Refused(Exception):
    """The kernel should raise this error, with exactly these conflicts."""

    def __init__(self, clashes: Iterable[Clash]) -> None:
        super().__init__("refused")
        self.clashes = frozenset(clashes)


class Rules(Struct, frozen=True):
    keys: Sequence[MergeKey] = ()
    default: MergeBehavior = MergeBehavior.NORMAL

    def behavior(self, key: ContentKey) -> MergeBehavior:
        return next((r.merge_behavior for r in self.keys if r.key == key), self.default)


class Model:
    """Predicts each operation: it returns the expected result, or raises the expected error.

    Errors that carry conflicts are raised as `Refused`. Operations on references change the model
    at once; `record` adds the commits that the kernel made.
    """

    def __init__(self, default_branch: str, namespace_validation: bool) -> None:
        self.default_branch = default_branch
        self.namespace_validation = namespace_validation
        self.commits: dict[str, ModelCommit] = {}
        self.branches: dict[str, str] = {default_branch: NOTHING}
        self.tags: dict[str, str] = {}
        self.notes: dict[str, TagNote | None] = {}
        self.content_ids: set[str] = set()
        self.moves = [Move("BRANCH", default_branch, "CREATE_REFERENCE", NOTHING, NOTHING)]

    # Reading

    @property
    def hashes(self) -> list[str]:
        """All commits ever made, oldest first, after the hash of the empty history."""
        return [NOTHING, *self.commits]

    def head(self, name: str) -> str:
        if name in self.branches:
            return self.branches[name]
        if name in self.tags:
            return self.tags[name]
        raise ReferenceNotFound(name)

    def state(self, hash: str) -> State:
        return {} if hash == NOTHING else self.commits[hash].state

    def seq(self, hash: str) -> int:
        return 0 if hash == NOTHING else self.commits[hash].seq

    def ancestors(self, hash: str) -> frozenset[str]:
        return frozenset() if hash == NOTHING else self.commits[hash].ancestors

    def parents(self, hash: str) -> tuple[str, ...]:
        return () if hash == NOTHING else (self.commits[hash].parent, *self.commits[hash].merged)

    def chain(self, hash: str) -> list[str]:
        """The commit and its first parents, newest first."""
        found = []
        while hash != NOTHING:
            found.append(hash)
            hash = self.commits[hash].parent
        return found

    def follow(self, hash: str, steps: Iterable[tuple[str, int]]) -> str:
        """Walk the steps `~n` and `^n`. A step beyond the history leads to its beginning."""
        for kind, number in steps:
            if kind == "~":
                hash = (self.chain(hash)[number:] or [NOTHING])[0]
            else:
                hash = (self.parents(hash)[number - 1 :] or [NOTHING])[0]
        return hash

    def diff(self, one: str, other: str) -> dict[ContentKey, tuple[Content | None, Content | None]]:
        return _differences(self.state(one), self.state(other))

    def merge_bases(self, one: str, other: str) -> set[str]:
        """Common ancestors that are no ancestors of another one; of those, the highest in seq."""
        common = self.ancestors(one) & self.ancestors(other)
        best = {a for a in common if not any(a in self.ancestors(b) for b in common - {a})}
        highest = max(map(self.seq, best), default=0)
        return {hash for hash in best if self.seq(hash) == highest}

    def common_on_first_parents(self, one: str, other: str) -> str:
        chain = set(self.chain(other))
        return next((hash for hash in self.chain(one) if hash in chain), NOTHING)

    # References

    def create(self, kind: str, name: str, at: str, note: TagNote | None = None) -> None:
        if name in self.branches or name in self.tags:
            raise ReferenceAlreadyExists(name)
        if kind == "BRANCH":
            self.branches[name] = at
        else:
            self.tags[name] = at
            # An empty message or signature is stored as None.
            self.notes[name] = note and TagNote(
                note.message or None, note.headers, note.signature or None
            )
        self.moves.append(Move(kind, name, "CREATE_REFERENCE", NOTHING, at))

    def assign(self, name: str, to: str, expected: str | None) -> None:
        before = self._head_at(name, expected)
        self._references_of(name)[name] = to
        self.moves.append(Move(self.kind(name), name, "ASSIGN_REFERENCE", before, to))

    def delete(self, name: str, expected: str | None) -> None:
        if name == self.default_branch:
            raise BadRequest("the default branch stays")
        before = self._head_at(name, expected)
        self.moves.append(Move(self.kind(name), name, "DELETE_REFERENCE", before, NOTHING))
        del self._references_of(name)[name]
        self.notes.pop(name, None)

    def kind(self, name: str) -> str:
        return "BRANCH" if name in self.branches else "TAG"

    def _head_at(self, name: str, expected: str | None) -> str:
        found = self.head(name)
        if expected not in (None, found):
            raise Refused({(None, ConflictType.UNEXPECTED_HASH)})
        return found

    def _references_of(self, name: str) -> dict[str, str]:
        return self.branches if name in self.branches else self.tags

    # Commits

    def commit(
        self, branch: str, operations: Sequence[Operation], message: str, expected: str | None
    ) -> Planned:
        _check_operations(operations)
        head = self._branch_with(branch, expected)
        seen = head if expected is None else expected
        seen_state, head_state = self.state(seen), self.state(head)
        puts = {op.key: op.content for op in operations if isinstance(op, Put)}
        deletes = dict.fromkeys(op.key for op in operations if isinstance(op, Delete))
        created = _created(seen_state, puts, deletes)
        if self.namespace_validation:
            deleted = {key: type(seen_state[key]) for key in deletes if key in seen_state}
            _check_namespaces(head_state, {key: type(puts[key]) for key in created}, deleted)
        _check_ids(puts.values())

        found = {key: _mismatch(head_state.get(key), seen_state.get(key)) for key in deletes}
        for key in puts.keys() - deletes.keys():
            if key not in created:
                found[key] = _mismatch(head_state.get(key), seen_state[key])
            elif key in head_state:
                found[key] = ConflictType.KEY_EXISTS
        if seen != head:
            for op in operations:
                if isinstance(op, Unchanged):
                    found[op.key] = _mismatch(head_state.get(op.key), seen_state.get(op.key))
        clashes = {(key, type) for key, type in found.items() if type is not None}
        if clashes:
            raise Refused(clashes)
        removed = {key: Removed(type(seen_state[key])) for key in deletes}
        return Planned(message, {**removed, **puts}, {**_without(head_state, deletes), **puts})

    def merge(
        self,
        source: str,
        into: str,
        base: str | None,
        *,
        rules: Rules,
        expected: str | None,
        squash: bool,
        message: str | None = None,
    ) -> Plan:
        """`base` is any one of the merge bases."""
        _check_rules(rules)
        head = self._branch_with(into, expected)
        if head == NOTHING or (source != NOTHING and base is None):
            raise ReferenceNotFound("no common ancestor")
        if source == NOTHING or source in self.ancestors(head):
            return Plan()
        if squash:
            assert base is not None
            return self._squash(base, source, head, rules, Planned(message, {}, {}, (source,)))
        unmerged = [hash for hash in self.chain(source) if hash not in self.ancestors(head)]
        plan = self._replay(unmerged[::-1], head, rules)
        if plan.commits:
            last = msgspec.structs.replace(plan.commits[-1], merged=(source,))
            plan = msgspec.structs.replace(plan, commits=[*plan.commits[:-1], last])
        return plan

    def transplant(
        self,
        hashes: Sequence[str],
        into: str,
        *,
        rules: Rules,
        expected: str | None,
        squash: bool,
        message: str | None = None,
    ) -> Plan:
        if not hashes:
            raise BadRequest("nothing to transplant")
        if NOTHING in hashes:
            raise ReferenceNotFound("the beginning is no commit")
        _check_rules(rules)
        if any(self.commits[b].parent != a for a, b in pairwise(hashes)):
            raise BadRequest("not contiguous")
        head = self._branch_with(into, expected)
        if squash:
            before = self.commits[hashes[0]].parent
            return self._squash(before, hashes[-1], head, rules, Planned(message, {}, {}))
        return self._replay(hashes, head, rules)

    def record(
        self,
        branch: str,
        operation: str,
        planned: Sequence[Planned],
        hashes: Sequence[str],
        added: Mapping[ContentKey, str],
    ) -> None:
        """Add the commits that the kernel made, with their hashes and new content ids."""
        before = self.branches[branch]
        new = {key for plan in planned for key, c in plan.state.items() if c.id is None}
        assert added.keys() == new, "content ids must be for exactly the new keys"
        for plan, hash in zip(planned, hashes, strict=True):
            parent = self.branches[branch]
            state, changes = _with_ids(plan.state, added), _with_ids(plan.changes, added)
            above = [self.ancestors(p) for p in (parent, *plan.merged)]
            assert hash not in self.commits, "a commit id exists already"
            self.commits[hash] = ModelCommit(
                hash=hash,
                parent=parent,
                merged=plan.merged,
                seq=self.seq(parent) + 1,
                message=plan.message,
                changes=changes,
                state=state,
                ancestors=frozenset({hash}.union(*above)),
            )
            self.branches[branch] = hash
        for id in added.values():
            assert id not in self.content_ids, "a content id exists already"
            self.content_ids.add(id)
        self.moves.append(Move("BRANCH", branch, operation, before, hashes[-1], len(hashes)))

    def _branch_with(self, branch: str, expected: str | None) -> str:
        """The head of a branch that must have the expected commit among its first parents."""
        if branch not in self.branches:
            raise ReferenceNotFound(branch)
        head = self.branches[branch]
        if expected not in (None, NOTHING, *self.chain(head)):
            raise ReferenceNotFound(f"{expected} on {branch}")
        return head

    def _squash(self, before: str, after: str, head: str, rules: Rules, empty: Planned) -> Plan:
        target = self.state(head)
        applied = _Applied(target)
        old, new = self.state(before), self.state(after)
        applied.take(_differences(old, new), rules, drop_always=True)
        # The result of a squash lists every key with the behavior DROP, changed or not.
        applied.touched |= {
            key for key in (*old, *new) if rules.behavior(key) is MergeBehavior.DROP
        }
        if self.namespace_validation:
            _check_namespaces(target, *_created_and_removed(target, applied.changes))
        if any(rule.key not in applied.touched for rule in rules.keys):
            raise BadRequest("a rule for a key that takes no part")
        full = msgspec.structs.replace(empty, changes=applied.changes, state=applied.state)
        return applied.plan([full] if applied.changes else [])

    def _replay(self, hashes: Sequence[str], head: str, rules: Rules) -> Plan:
        """Apply commit after commit; skip commits without remaining changes."""
        applied = _Applied(self.state(head), replays=True)
        planned = []
        for hash in hashes:
            commit = self.commits[hash]
            if self.namespace_validation:
                _check_namespaces(
                    applied.state, *_created_and_removed(applied.state, commit.changes)
                )
            before = self.state(commit.parent)
            differences = {k: (before.get(k), change) for k, change in commit.changes.items()}
            applied.take(differences, rules, drop_always=False)
            if applied.changes:
                planned.append(Planned(commit.message, applied.changes, applied.state))
        return applied.plan(planned)


class _Applied:
    """A state to which a source's changes are applied, and the clashes found so far."""

    def __init__(self, state: State, *, replays: bool = False) -> None:
        self.replays = replays
        self.state = state
        self.changes: dict[ContentKey, Content | Removed] = {}
        self.clashes: dict[ContentKey, frozenset[ConflictType]] = {}
        self.touched: frozenset[ContentKey] = frozenset()

    def take(
        self, differences: Mapping[ContentKey, Difference], rules: Rules, *, drop_always: bool
    ) -> None:
        """Apply the changes. `drop_always` applies the behavior DROP also without a conflict."""
        renames = _renames(differences)
        dropped = {
            key
            for key in differences
            if rules.behavior(key) is MergeBehavior.DROP
            and (drop_always or any(key in pair for pair in renames))
        }
        while more := {key for pair in renames if dropped & pair for key in pair - dropped}:
            dropped |= more
        _check_ids(
            now for key, (_, now) in differences.items() if key not in dropped and now is not None
        )
        self.touched |= differences.keys()
        self.changes = {}
        target = self.state
        for key, (was, now) in differences.items():
            if key not in dropped and self._applies(key, target.get(key), was, now, rules):
                if isinstance(now, Content):
                    self.changes[key] = now
                elif was is not None:
                    self.changes[key] = Removed(type(was))
        puts = {key: c for key, c in self.changes.items() if isinstance(c, Content)}
        # A forced commit may remove a key that did not exist, which changes nothing.
        changed = {
            key
            for key, (was, now) in differences.items()
            if was is not None or isinstance(now, Content)
        }
        for key in self._renamed_otherwise(differences, dropped, rules):
            if key not in self.changes and key not in changed:
                self.touched |= {key}
                self.changes[key] = Removed(type(target[key]))
        self.state = {**_without(target, self.changes), **puts}

    def _renamed_otherwise(
        self, differences: Mapping[ContentKey, Difference], dropped: set[ContentKey], rules: Rules
    ) -> list[ContentKey]:
        """Keys of the target whose content a forced rename of the source has under another key."""
        moved = {
            was.id
            for key, (was, now) in differences.items()
            if was is not None
            and any(key in pair for pair in _renames(differences))
            and not (isinstance(now, Content) and now.id == was.id)
            and key not in dropped
            and key not in self.state
            and rules.behavior(key) is MergeBehavior.FORCE
        }
        arrived = {
            now.id
            for was, now in differences.values()
            if isinstance(now, Content) and not (was is not None and was.id == now.id)
        }
        return [key for key, content in self.state.items() if content.id in moved & arrived]

    def plan(self, planned: Sequence[Planned]) -> Plan:
        return Plan(
            commits=() if self.clashes else planned,
            clashes=self.clashes,
            touched=self.touched,
        )

    def _applies(
        self,
        key: ContentKey,
        target: Content | None,
        was: Content | None,
        now: Content | Removed | None,
        rules: Rules,
    ) -> bool:
        clash: ConflictType | None
        if was is not None and isinstance(now, Content) and was.id != now.id and self.replays:
            clash = _replaced(target, now)
        elif was is not None:
            clash = _mismatch(target, was)
        else:
            clash = ConflictType.KEY_EXISTS if isinstance(now, Content) and target else None
        if clash is None:
            return True
        if was is None and type(target) is type(now):
            if target == now:
                return False
            if isinstance(target, Namespace):
                return True
        behavior = rules.behavior(key)
        if behavior is MergeBehavior.NORMAL:
            self.clashes[key] = self.clashes.get(key, frozenset()) | {clash}
        return behavior is not MergeBehavior.DROP


def _mismatch(found: Content | None, expected: Content | None) -> ConflictType | None:
    """The first difference between found and expected content. A missing key always conflicts."""
    if found is None:
        return ConflictType.KEY_DOES_NOT_EXIST
    if type(found) is not type(expected):
        return ConflictType.PAYLOAD_DIFFERS
    assert expected is not None, "otherwise the types differ"
    if found.id != expected.id:
        return ConflictType.CONTENT_ID_DIFFERS
    return None if found == expected else ConflictType.VALUE_DIFFERS


def _replaced(found: Content | None, now: Content) -> ConflictType:
    """The conflict of a commit that replaced a content by another one: it always has one."""
    return _mismatch(found, now) or ConflictType.VALUE_DIFFERS


def _created(
    seen: State, puts: Mapping[ContentKey, Content], deletes: Iterable[ContentKey]
) -> set[ContentKey]:
    """The keys that a commit creates, re-adds or renames to. Impossible content ids are an error.

    Two deleted keys may hold the same content, because a forced merge can restore it under its old
    key. A rename then belongs to the later delete.
    """
    free = {seen[key].id: key for key in deletes if key in seen}
    created: set[ContentKey] = set()
    left: set[ContentKey] = set()
    for key, content in puts.items():
        if content.id is None:
            if key in seen and (key not in deletes or key in left):
                raise BadRequest("an update needs the content id")
            created.add(key)
            continue
        existing = seen.get(key)
        if existing is None and content.id in free:
            old = free.pop(content.id)
            existing = seen[old]
            left.add(old)
        if existing is None or existing.id != content.id or type(existing) is not type(content):
            raise BadRequest("a content id that does not fit")
        if key not in seen:
            created.add(key)
    return created


def _check_ids(changes: Iterable[Content | Removed]) -> None:
    ids = [change.id for change in changes if isinstance(change, Content) and change.id is not None]
    if len(ids) != len(set(ids)):
        raise BadRequest("a content id comes twice")


def _check_operations(operations: Sequence[Operation]) -> None:
    if not operations:
        raise BadRequest("no operations")
    for at, later in enumerate(operations):
        earlier = [op for op in operations[:at] if op.key == later.key]
        new = isinstance(later, Put) and later.content.id is None
        if earlier and not (new and [type(op) for op in earlier] == [Delete]):
            raise BadRequest("a key comes twice")


def _check_rules(rules: Rules) -> None:
    keys = [rule.key for rule in rules.keys]
    if len(keys) != len(set(keys)):
        raise BadRequest("two rules for one key")


def _check_namespaces(
    state: State,
    created: Mapping[ContentKey, type[Content]],
    deleted: Mapping[ContentKey, type[Content]],
) -> None:
    clashes: set[Clash] = set()
    for key in created:
        parent = key.parent
        if not parent.elements or created.get(parent) is Namespace:
            continue
        while parent.elements and parent not in state:
            clashes.add((parent, ConflictType.NAMESPACE_ABSENT))
            parent = parent.parent
        if parent.elements and not isinstance(state[parent], Namespace):
            clashes.add((parent, ConflictType.NOT_A_NAMESPACE))
    for key, kind in deleted.items():
        if kind is Namespace and any(
            other.starts_with(key) and other != key and other not in deleted for other in state
        ):
            clashes.add((key, ConflictType.NAMESPACE_NOT_EMPTY))
    if clashes:
        raise Refused(clashes)


def _created_and_removed(
    state: State, changes: Changes
) -> tuple[dict[ContentKey, type[Content]], dict[ContentKey, type[Content]]]:
    """The kinds of the keys that the changes create in a state, and of those they remove."""
    created = {k: type(c) for k, c in changes.items() if isinstance(c, Content) and k not in state}
    removed = {k: c.kind for k, c in changes.items() if isinstance(c, Removed)}
    return created, removed


def _renames(differences: Mapping[ContentKey, Difference]) -> list[frozenset[ContentKey]]:
    """The old and the new key of every renamed content."""
    left, arrived = {}, {}
    for key in sorted(differences):
        was, now = differences[key]
        put = now if isinstance(now, Content) else None
        if was is not None and (put is None or was.id != put.id):
            left[was.id] = key
        if put is not None and (was is None or was.id != put.id):
            arrived[put.id] = key
    return [frozenset({left[id], arrived[id]}) for id in left.keys() & arrived.keys()]


def _differences(
    before: State, after: State
) -> dict[ContentKey, tuple[Content | None, Content | None]]:
    keys = sorted(before.keys() | after.keys())
    pairs = {key: (before.get(key), after.get(key)) for key in keys}
    return {key: (was, now) for key, (was, now) in pairs.items() if was != now}


def _without(state: State, keys: Iterable[ContentKey]) -> dict[ContentKey, Content]:
    removed = set(keys)
    return {key: content for key, content in state.items() if key not in removed}


def _with_ids(
    contents: Mapping[ContentKey, T], added: Mapping[ContentKey, str]
) -> dict[ContentKey, T]:
    """The contents, with ids for new content."""
    named = {}
    for key, content in contents.items():
        if isinstance(content, Content) and content.id is None:
            named[key] = cast("T", msgspec.structs.replace(content, id=added[key]))
        else:
            named[key] = content
    return named

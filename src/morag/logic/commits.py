"""Builds a commit on top of its parent, and finds its conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.format import ids
from morag.format.ids import NO_ANCESTOR, NO_CONTENT_ID, Headers
from morag.format.index_entries import ADD, REMOVE, content_id_of, make_op, parts_of, payload_of
from morag.format.key_order import key_to_utf8
from morag.format.objects import CommitKind
from morag.format.proof import needs_seal
from morag.format.records import ObjId
from morag.index.layered import CommitIndex, index_of, replaced
from morag.logic.completion import BuiltCommit, CommitFacts, commit_on
from morag.model.conflicts import ConflictType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from morag.format.objects import Commit
    from morag.index.segment import Entry
    from morag.persist.persist import Persist


_key: Final = attrgetter("key")


class Add(Struct, frozen=True, gc=False):
    """Put a value under a key.

    The key must hold `expected` now, or nothing if that is None. With `renamed` the content comes
    from a key that the same commit removes, and its new key must be free.
    """

    key: bytes
    payload: int
    value: ObjId
    content_id: bytes = NO_CONTENT_ID
    expected: ObjId | None = None
    renamed: bool = False


class Remove(Struct, frozen=True, gc=False):
    """Remove a key that holds `expected` now. NO_ANCESTOR stands for a key that held nothing."""

    key: bytes
    payload: int
    expected: ObjId
    content_id: bytes = NO_CONTENT_ID


class Unmoved(Struct, frozen=True, gc=False):
    """Assert that a key still holds `expected`; nothing is written for it.

    NO_ANCESTOR stands for a key that held nothing, and always conflicts: Nessie does not treat
    absence as something that can stay unchanged.
    """

    key: bytes
    payload: int
    expected: ObjId
    content_id: bytes = NO_CONTENT_ID


class Draft(Struct, frozen=True, kw_only=True):
    """A commit before it has a parent."""

    message: str
    headers: Headers = ()
    removes: Sequence[Remove] = ()
    unmoved: Sequence[Unmoved] = ()
    adds: Sequence[Add] = ()
    merge_parents: tuple[ObjId, ...] = ()
    kind: CommitKind = CommitKind.NORMAL


class KeyConflict(Struct, frozen=True):
    """`wanted` is the entry that could not be written, `existing` the one that is there."""

    type: ConflictType
    key: bytes
    wanted: bytes | None
    existing: bytes | None


class Resolution(Enum):
    REPORT = "report"
    """The commit fails with this conflict, and with all others that are reported."""
    APPLY = "apply"
    """The change is made anyway."""
    DROP = "drop"
    """The change is left out."""


class CommitConflicts(Exception):
    """All conflicts of one commit. `versions` reports them in terms of content keys."""

    def __init__(self, conflicts: Sequence[KeyConflict]) -> None:
        super().__init__(f"{len(conflicts)} conflicts")
        self.conflicts = tuple(conflicts)


def build_commit(
    persist: Persist,
    parent: Commit | None,
    draft: Draft,
    resolve: Callable[[KeyConflict], Resolution] = lambda _: Resolution.REPORT,
    at_parent: Mapping[bytes, bytes] | None = None,
) -> BuiltCommit:
    """The commit that makes the draft's changes on top of `parent`.

    Only index entries are compared: no value is read and no log is walked. `at_parent` are the
    parent's entries of all keys in the draft, if the caller has them.
    """
    index = index_of(persist, parent)
    removes = sorted(draft.removes, key=_key) if len(draft.removes) > 1 else draft.removes
    adds = sorted(draft.adds, key=_key) if len(draft.adds) > 1 else draft.adds
    if at_parent is None:
        groups = (removes, adds, draft.unmoved)
        at_parent = index.get_all([change.key for group in groups for change in group])
    conflicts: list[KeyConflict] = []

    def is_applied(conflict: KeyConflict) -> bool:
        resolution = resolve(conflict)
        if resolution is Resolution.REPORT:
            conflicts.append(conflict)
        return resolution is Resolution.APPLY

    ops: dict[bytes, bytes] = {}
    hashed: list[bytes] = []
    readded: set[bytes] = set()
    added = {add.key: add.content_id for add in adds} if removes else {}
    for remove in removes:
        op = make_op(REMOVE, remove.payload, remove.expected, remove.content_id)
        conflict = _conflict(at_parent.get(remove.key), remove, op)
        if conflict is None or is_applied(conflict):
            ops[remove.key] = op
            # The row has no remove for a key that is added again. The hashed remove must be found
            # in the parent, or the id could not be checked; and an entry of the parent with the
            # same content id is not removed at all.
            gone = op if conflict is None or remove.key not in added else conflict.existing
            if gone is not None and content_id_of(gone) != added.get(remove.key):
                if remove.key in added:
                    readded.add(remove.key)
                hashed.append(
                    ids.hashed_remove(
                        key_to_utf8(remove.key), payload_of(gone), content_id_of(gone)
                    )
                )
    for unmoved in draft.unmoved:
        conflict = _conflict(at_parent.get(unmoved.key), unmoved, None)
        if conflict is not None:
            is_applied(conflict)
    removed = {remove.key for remove in removes}
    for add in adds:
        key, payload, value, content_id = add.key, add.payload, add.value, add.content_id
        op = make_op(ADD, payload, value, content_id)
        if key in removed:
            # It is removed and added again, and starts as a new one: the decision on its remove
            # applies to both.
            is_made = key in ops
        else:
            conflict = _conflict(at_parent.get(key), add, op)
            is_made = conflict is None or is_applied(conflict)
        if is_made:
            ops[key] = op
            hashed.append(ids.hashed_add(key_to_utf8(key), payload, value, content_id))
    if conflicts:
        raise CommitConflicts(conflicts)

    parent_id = NO_ANCESTOR if parent is None else parent.id
    operations = sorted(ops.items()) if removes else list(ops.items())  # Adds are in order.
    facts = CommitFacts(
        id=ids.commit_id(parent_id, draft.message, draft.headers, hashed),
        created_micros=persist.now_micros(),
        seq=1 if parent is None else parent.seq + 1,
        merge_parents=draft.merge_parents,
        headers=draft.headers,
        message=draft.message,
        sealed=_is_sealed(draft, index, operations, readded),
        kind=draft.kind,
    )
    return commit_on(persist, parent, facts, operations)


def _is_sealed(
    draft: Draft, index: CommitIndex, operations: Sequence[Entry], readded: set[bytes]
) -> bool:
    needs = needs_seal(len(operations), is_merge_with_adds=bool(draft.merge_parents and draft.adds))
    return needs and _allows_seal(index, operations, readded)


def _allows_seal(index: CommitIndex, operations: Sequence[Entry], readded: set[bytes]) -> bool:
    """Whether the id follows from the row and the parent.

    The removes of `readded` keys are hashed, but not stored. They can be reconstructed if the
    commit replaced nothing else; a forced merge may also replace content without a remove.
    """
    return not readded or readded == {key for key, _ in replaced(index, operations)}


def _conflict(
    existing: bytes | None, change: Add | Remove | Unmoved, op: bytes | None
) -> KeyConflict | None:
    """The first reason why the existing entry is not the expected one."""
    expected = change.expected
    must_be_free = expected is None or (isinstance(change, Add) and change.renamed)
    if existing is None:
        if must_be_free:
            return None
        found = ConflictType.KEY_DOES_NOT_EXIST
    elif must_be_free:
        found = ConflictType.KEY_EXISTS
    else:
        payload, value, content_id = parts_of(existing)
        if payload != change.payload:
            found = ConflictType.PAYLOAD_DIFFERS
        elif content_id != change.content_id:
            found = ConflictType.CONTENT_ID_DIFFERS
        elif value != expected:
            found = ConflictType.VALUE_DIFFERS
        else:
            return None
    return KeyConflict(found, change.key, op, existing)

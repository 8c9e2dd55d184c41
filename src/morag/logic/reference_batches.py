"""Creates and drops several references in one step, if the store can swap several refs at once.

Other processes see all changes or none, so there is no step that they could find missing, and no
order of steps to keep (`references.py`). Only plain changes are made here. The others, for example
of a name that exists already or whose last change was interrupted, are left to the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from morag.backend.base import RefSwap
from morag.errors import BadRequest, MoragError, StoreBusy
from morag.format.index_entries import value_of
from morag.format.objects import RefObj
from morag.format.records import ObjId, Ref
from morag.index.keys import text_key
from morag.index.layered import index_of
from morag.index.spill import ENTRY_BYTES, grows_quickly
from morag.logic.commits import build_commit
from morag.logic.history import head_commit, is_published, was_published
from morag.logic.internal_refs import REFS, missing, written
from morag.logic.name_commits import initial_state, name_added, name_removed
from morag.persist.persist import WouldWait

if TYPE_CHECKING:
    from morag.backend.base import LogRow
    from morag.format.objects import Commit, Obj
    from morag.logic.commits import Draft
    from morag.logic.reflog import RefLogWriter
    from morag.logic.retry import Retries
    from morag.persist.persist import Persist


class Creation(Struct, frozen=True):
    """Creates a reference, unless `other_kind` exists: the same short name for a tag or branch."""

    name: str
    other_kind: str
    pointer: ObjId
    extended_info: ObjId | None = None
    who: str = ""


class Drop(Struct, frozen=True):
    """Drops a reference that is at the expected commit."""

    name: str
    expected: ObjId
    who: str = ""


Change: TypeAlias = Creation | Drop
Made: TypeAlias = Mapping[int, Ref]
"""The changes that were made, by their position, with the created or dropped refs."""


class NotMade(Exception):
    """The store refused the step, and certainly made none of its changes."""


class ReferenceBatches:
    def __init__(self, persist: Persist, ref_log: RefLogWriter, retries: Retries) -> None:
        self._persist = persist
        self._ref_log = ref_log
        self._retries = retries

    def make(self, changes: Sequence[Change]) -> Made:
        """Make all plain changes, in this order. Raises `NotMade` if the store refuses one."""
        tried: list[tuple[Commit, Made]] = []
        try:
            for attempt in self._retries.attempts("commit"):
                try:
                    made = self._attempt(changes, tried)
                    if made is not None:
                        return made
                except StoreBusy as busy:
                    attempt.failure = busy
        except StoreBusy as busy:
            if not tried:
                raise
            raise _unknown(busy) from busy
        raise AssertionError("the attempts end with an error")

    def make_at_once(self, changes: Sequence[Change]) -> Made:
        """Make all changes without waiting, in a store that writes quickly.

        Raises `WouldWait`, and changes nothing, if a change is not plain or this could take long.
        """
        try:
            step = self._new_step(changes)
        except StoreBusy as busy:
            raise WouldWait from busy
        try:
            self._add_at_once(step, changes)
            self._publish_at_once(step)
        except StoreBusy as busy:
            raise _unknown(busy) from busy
        finally:
            self._persist.unstage(step.objects)
        return step.made

    def _add_at_once(self, step: _Step, changes: Sequence[Change]) -> None:
        """Add all changes. Raises `WouldWait` at the first one that cannot be made here."""

        def added_bytes() -> int:
            return sum(len(change.name.encode()) + ENTRY_BYTES for change in changes)

        if step.head is not None and not grows_quickly(self._persist, step.head, added_bytes):
            raise WouldWait
        for number, change in enumerate(changes):
            try:
                is_plain = step.add(number, change)
            except StoreBusy as busy:
                raise WouldWait from busy
            if not is_plain:
                raise WouldWait

    def _publish_at_once(self, step: _Step) -> None:
        assert step.head is not None, "each change is a commit"
        try:
            if not step.publish(may_wait=False):
                raise WouldWait  # Another thread changed a ref first.
        except WouldWait:
            raise
        except Exception as failure:
            # After any error the refs may be changed; readers may see that only after a sync.
            if is_published(self._persist, REFS, step.head):
                return
            if failure is step.refusal:
                raise WouldWait from failure
            raise

    def _attempt(self, changes: Sequence[Change], tried: list[tuple[Commit, Made]]) -> Made | None:
        """None if another process changed one of the refs meanwhile."""
        step = self._new_step(changes)
        for commit, made in tried:
            if was_published(self._persist, commit, step.names):
                return made  # An earlier attempt succeeded, but its reply was lost.
        try:
            for number, change in enumerate(changes):
                step.add(number, change)
            if not step.made:
                return step.made
            assert step.head is not None, "each change is a commit"
            tried.append((step.head, step.made))
            is_written = written(self._persist, REFS, step.head, step.publish)
        except MoragError as error:
            if error is step.refusal:
                raise NotMade from error
            raise
        finally:
            self._persist.unstage(step.objects)
        return step.made if is_written else None

    def _new_step(self, changes: Sequence[Change]) -> _Step:
        stored = self._persist.refs([REFS, *(name for each in changes for name in _names(each))])
        names = stored.get(REFS)
        if names is None:
            raise missing(REFS)
        return _Step(self._persist, self._ref_log, names, stored)


class _Step:
    """Commits on `int/refs`, each on top of the one before, and all swaps that go with them."""

    def __init__(
        self, persist: Persist, ref_log: RefLogWriter, names: Ref, stored: Mapping[str, Ref]
    ) -> None:
        self._persist = persist
        self._ref_log = ref_log
        self.names = names
        self._stored = stored
        self._swaps: list[RefSwap] = []
        self._lines: list[LogRow] = []
        self.head = head_commit(persist, names.pointer)
        self.refusal: MoragError | None = None
        self.objects: list[Obj] = []
        self.made: dict[int, Ref] = {}

    def add(self, number: int, change: Change) -> bool:
        """Add the change, if it is plain."""
        ref = self._create(change) if isinstance(change, Creation) else self._drop(change)
        if ref is not None:
            self.made[number] = ref
        return ref is not None

    def publish(self, *, may_wait: bool = True) -> bool:
        assert self.head is not None, "there is a change"
        # The names first: a reader of a store in memory may see a part of the step. A name without
        # a ref looks like an unfinished creation, so a dropped name must be gone before its ref.
        moved = RefSwap(REFS, self.names, self._persist.moved(self.names, self.head.id))
        try:
            return self._persist.publish_all(
                self.objects, [moved, *self._swaps], self._lines, may_wait=may_wait
            )
        except StoreBusy:
            raise
        except MoragError as refusal:
            self.refusal = refusal
            raise

    def _create(self, creation: Creation) -> Ref | None:
        for name in _names(creation):
            if name in self._stored or self._entry(name) is not None:
                return None
        try:
            self._persist.check_name(creation.name)
        except BadRequest:
            return None
        persist = self._persist
        ref = Ref(
            creation.name, creation.pointer, False, persist.now_micros(), creation.extended_info
        )
        self._commit(name_added(ref, persist.clock_nanos()), [initial_state(ref)])
        self._swaps.append(RefSwap(ref.name, None, ref))
        self._lines.append(self._ref_log.creation(ref, creation.who))
        return ref

    def _drop(self, drop: Drop) -> Ref | None:
        ref, entry = self._stored.get(drop.name), self._entry(drop.name)
        if ref is None or ref.deleted or ref.pointer != drop.expected or entry is None:
            return None
        created = self._persist.fetch(RefObj, value_of(entry))
        if created.created_micros != ref.created_micros:
            return None
        self._commit(name_removed(ref, entry, self._persist.clock_nanos()), [])
        self._swaps.append(RefSwap(ref.name, ref, None))
        self._lines.append(self._ref_log.removal(ref, drop.who))
        return ref

    def _entry(self, name: str) -> bytes | None:
        """The index entry of the name, after the changes so far."""
        return index_of(self._persist, self.head).get(text_key(name))

    def _commit(self, draft: Draft, objects: Sequence[Obj]) -> None:
        built = build_commit(self._persist, self.head, draft)
        new = [*objects, *built.indexes, built.commit]
        self._persist.stage(new)  # The next commit builds on these.
        self.objects += new
        self.head = built.commit


def _unknown(busy: StoreBusy) -> StoreBusy:
    return type(busy)(
        f"{busy}. It is unknown whether the change was made: check the reference first"
    )


def _names(change: Change) -> tuple[str, ...]:
    """The refs to read before the change."""
    return (change.name, change.other_kind) if isinstance(change, Creation) else (change.name,)

"""Changes of named references: create, move and drop them.

All names are kept as keys of the internal reference `int/refs`, by ordinary commits. Creating a
reference commits its name first and inserts its ref last; dropping marks the ref first, commits,
and removes the ref last. The next creation, commit, assignment or drop that meets a missing step
completes it: if the ref of a committed name is missing, it inserts the ref; if a ref is marked, it
finishes the drop. Readers complete nothing (`ReferenceReader`): a ref that a slow reader inserts
after a drop would be a reference without a name.
"""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING

import msgspec

from morag.errors import (
    BadRequest,
    ReferenceAlreadyExists,
    ReferenceNotFound,
    RepositoryCorrupt,
    StoreBusy,
    StoreCannotWrite,
)
from morag.format.index_entries import value_of
from morag.format.objects import RefObj
from morag.format.records import Ref
from morag.index.keys import text_key
from morag.logic.commits import CommitConflicts
from morag.logic.internal_refs import REFS, commit_internal, is_unchanged_by_swap, missing
from morag.logic.name_commits import initial_state, name_added, name_removed
from morag.logic.reference_batches import Drop, NotMade, ReferenceBatches
from morag.logic.reference_reader import INTERNAL, ReferenceReader, ref_of, short_name
from morag.logic.reflog import RefOperation
from morag.persist.persist import WouldWait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from morag.backend.base import LogRow
    from morag.format.objects import Obj
    from morag.format.records import ObjId
    from morag.index.layered import CommitIndex
    from morag.logic.commits import Draft
    from morag.logic.reference_batches import Change, Made
    from morag.logic.reflog import RefLogWriter
    from morag.logic.retry import Retries
    from morag.persist.persist import Persist


class RefMoved(Exception):
    """The reference is not at the expected commit; `ref` is its actual state."""

    def __init__(self, ref: Ref) -> None:
        super().__init__(f"'{ref.name}' is at {ref.pointer.hex()}")
        self.ref = ref


class References:
    def __init__(self, persist: Persist, ref_log: RefLogWriter, retries: Retries) -> None:
        self._persist = persist
        self._reader = ReferenceReader(persist)
        self._ref_log = ref_log
        self._retries = retries
        self._batches = ReferenceBatches(persist, ref_log, retries)
        # Names change one at a time in this process; the swap decides between processes. Reentrant
        # because a change completes earlier ones first.
        self._lock = RLock()

    def completed(self, name: str) -> Ref | None:
        """The stored ref, after an interrupted change of it was completed; None if there is none.

        Only a ref from here is certainly stored: `ReferenceReader` also shows references whose ref
        is missing.
        """
        if name.startswith(INTERNAL):
            return None
        ref = self._persist.ref(name)
        if ref is None and self._reader.created(name) is None:
            return None
        return self._complete(name) if ref is None or ref.deleted else ref

    def change_all(self, changes: Sequence[Change]) -> list[Ref | Exception]:
        """Make the changes, together as far as possible; return the refs or the errors, in order.

        A failure of the store is the error of all later changes, too: they need not wait in turn.
        """
        with self._lock:
            made = self._made_together(changes) if self._persist.swaps_together else {}
            outcomes: list[Ref | Exception] = []
            busy: StoreBusy | None = None
            for number, change in enumerate(changes):
                outcome = made.get(number) or busy or self._outcome(change)
                if isinstance(outcome, StoreBusy):
                    busy = outcome
                outcomes.append(outcome)
            return outcomes

    def change_all_at_once(self, changes: Sequence[Change]) -> list[Ref]:
        """Make the changes without waiting, in a store that writes quickly.

        Raises `WouldWait`, and nothing is changed, if that is not possible.
        """
        if not self._lock.acquire(blocking=False):
            raise WouldWait
        try:
            made = self._batches.make_at_once(changes)
        finally:
            self._lock.release()
        return [made[number] for number in range(len(changes))]

    def create(
        self, name: str, pointer: ObjId, extended_info: ObjId | None = None, who: str = ""
    ) -> Ref:
        _check_not_internal(name)
        self._persist.check_name(name)
        with self._lock:
            found = self.completed(name)
            if found is not None:
                if self._currently_created(name) is not None:
                    raise ReferenceAlreadyExists.named(short_name(name))
                self._remove_if_dropped(found)  # A server that stopped left it without a name.
            # Read the clock only now: a drop that this call waited for must not be newer.
            ref = Ref(name, pointer, False, self._persist.now_micros(), extended_info)
            line = self._ref_log.creation(ref, who)
            self._commit_name(ref)
            try:
                inserted = self._inserted(ref, line)
            except Exception:  # The insert may have succeeded.
                self._remove_if_dropped(ref)
                raise
            # A store of one process needs no check: the lock prevents a concurrent drop.
            if self._persist.is_shared and not self._check_until_answered(
                self._is_among_names, ref
            ):
                self._remove_if_dropped(ref)
            return inserted

    def move(self, ref: Ref, pointer: ObjId, who: str = "") -> Ref:
        """Assign: point `ref` to another commit, if it has not changed since the caller read it."""
        line = self._ref_log.line(
            ref.name, RefOperation.ASSIGN_REFERENCE, ref.pointer, pointer, who
        )
        moved = self._persist.moved(ref, pointer)
        for _ in self._retries.attempts("assign reference"):
            if self._swapped(ref.name, ref, moved, [line]):
                return moved
            now = self._existing(ref.name)
            if now.identity != ref.identity:
                raise RefMoved(now)
            # The caller read a reference whose creation was not completed. Now it is. Or others
            # moved the ref away and back.
        raise AssertionError("the attempts end with an error")

    def drop(self, name: str, expected: ObjId, who: str = "") -> Ref:
        _check_not_internal(name)
        with self._lock:
            ref = self._existing(name)
            if ref.pointer != expected:
                raise RefMoved(ref)
            marked = msgspec.structs.replace(ref, deleted=True)
            if not self._swapped(name, ref, marked, [self._ref_log.removal(ref, who)]):
                raise RefMoved(self._existing(name))
            self._finish_drop(marked)
            return ref

    def _made_together(self, changes: Sequence[Change]) -> Made:
        """Make the plain changes in one step. If the store refuses one of them, none is made: then
        each is made alone, so that only that one fails."""
        try:
            return self._batches.make(changes)
        except NotMade:
            return {}

    def _outcome(self, change: Change) -> Ref | Exception:
        try:
            if isinstance(change, Drop):
                return self.drop(change.name, change.expected, change.who)
            if self._reader.find(change.other_kind) is not None:
                raise ReferenceAlreadyExists.named(short_name(change.name))
            return self.create(change.name, change.pointer, change.extended_info, change.who)
        except Exception as failure:  # noqa: BLE001 - The caller passes it to its client.
            return failure

    def _inserted(self, ref: Ref, line: LogRow) -> Ref:
        """Insert the ref of a name that this process committed."""
        for _ in self._retries.attempts("create reference"):
            if self._swapped(ref.name, None, ref, [line]):
                return ref
            found = self._persist.ref(ref.name)
            if found is not None and found.created_micros == ref.created_micros:
                # Another server completed the creation first, and others moved or marked the ref.
                self._persist.append_log([line])
                return found
            if self._remove_if_dropped(ref):
                return ref  # Other servers completed the creation and dropped the reference.
            self.completed(ref.name)  # The ref of an older reference is in the way.
        raise AssertionError("the attempts end with an error")

    def _existing(self, name: str) -> Ref:
        ref = self.completed(name)
        if ref is None:
            raise ReferenceNotFound.named(short_name(name))
        return ref

    # Swaps whose reply may be lost

    def _swapped(
        self, name: str, expected: Ref | None, new: Ref | None, lines: Sequence[LogRow] = ()
    ) -> bool:
        """Swap, and check the store after a failure: the swap may have succeeded unnoticed."""
        may_be_done = False
        for attempt in self._retries.attempts("move reference"):
            try:
                # Not swapped twice: others may have moved the ref back since then.
                if not (may_be_done and self._is_done(name, expected, new)):
                    if self._persist.swap_ref(name, expected, new, lines):
                        return True
                    if not self._is_done(name, expected, new):
                        return False
                # If nothing failed, another server may have made the change and logged it. A
                # creator writes its line all the same, because only it knows the author.
                if may_be_done or expected is None:
                    self._persist.append_log(lines)
                return True
            except StoreBusy as busy:
                attempt.failure, may_be_done = busy, True
            except Exception:  # After any error the swap may have succeeded.
                if not self._is_done(name, expected, new):
                    raise
                self._persist.append_log(lines)
                return True
        raise AssertionError("the attempts end with an error")

    def _is_done(self, name: str, expected: Ref | None, new: Ref | None) -> bool:
        """Whether the store is in the state after the swap, or has moved on from it."""
        now = self._current_ref(name)
        if new is None:
            return now is None or expected is None or now.identity != expected.identity
        if now is not None and now.identity == new.identity:
            return True
        if new.deleted:
            # Another server finished the drop. The name is removed first, so the name decides.
            created = self._currently_created(name)
            return created is None or created.created_micros != new.created_micros
        return now is not None and expected is not None and _moved_on(now, expected, new)

    def _current_ref(self, name: str) -> Ref | None:
        """The current ref; a stale one is read again."""
        for _ in self._retries.attempts("read reference"):
            ref = self._persist.ref(name)
            if ref is None or is_unchanged_by_swap(self._persist, ref):
                return ref
        raise AssertionError("the attempts end with an error")

    # Completing interrupted changes

    def _complete(self, name: str) -> Ref | None:
        with self._lock:
            for attempt in self._retries.attempts("complete reference"):
                try:
                    ref = self._persist.ref(name)
                    if ref is None:
                        # Checked before each insert: during the pause, another server may have
                        # dropped the name.
                        created = self._currently_created(name)
                        return None if created is None else self._restored(ref_of(created))
                    if not ref.deleted:
                        return ref  # Another thread or server was faster.
                    self._finish_drop(ref)
                except StoreBusy as busy:
                    attempt.failure = busy
        raise AssertionError("the attempts end with an error")

    def _restored(self, ref: Ref) -> Ref | None:
        """Insert the ref of a committed name for its creator, who may be doing the same."""
        line, failure = self._ref_log.creation(ref), None
        try:
            self._persist.swap_ref(ref.name, None, ref, [line])
        except Exception as error:  # noqa: BLE001 - The insert may have succeeded.
            failure = error
        if self._remove_if_dropped(ref):
            return None
        found = self._persist.ref(ref.name)
        if failure is not None and found is None:
            raise failure
        if found is None or found.created_micros != ref.created_micros or found.deleted:
            return None
        # The author is unknown here, so this line must not replace that of the creator.
        if not self._ref_log.has(line):
            self._persist.append_log([line])
        return found

    def _remove_if_dropped(self, ref: Ref) -> bool:
        """Remove a ref that was inserted after its name had been dropped.

        Between the commit of the name and our insert, other servers may have inserted the ref and
        dropped the reference. Then no other process would ever remove the ref.
        """
        return self._check_until_answered(self._removed_if_dropped, ref)

    def _removed_if_dropped(self, ref: Ref) -> bool:
        created = self._currently_created(ref.name)
        if created is not None and created.created_micros == ref.created_micros:
            return False
        # A dropped name does not return with the same creation time. So the ref is removed even if
        # a client found it in this moment and moved it: that client changed a dropped reference.
        now = ref
        lines: list[LogRow] = []
        for _ in self._retries.attempts("remove reference"):
            if self._persist.swap_ref(ref.name, now, None, lines):
                return True
            found = self._persist.ref(ref.name)
            if found is None or found.created_micros != ref.created_micros:
                return True
            now, lines = found, [] if found.deleted else [self._ref_log.removal(found)]
        raise AssertionError("the attempts end with an error")

    def _check_until_answered(self, check: Callable[[Ref], bool], ref: Ref) -> bool:
        """Check again after a failure: otherwise a ref without a name could remain forever."""
        for attempt in self._retries.attempts("create reference"):
            try:
                return check(ref)
            except (StoreCannotWrite, RepositoryCorrupt):
                raise  # The next attempt would fail, too.
            except Exception as failure:  # noqa: BLE001 - raised by the last attempt.
                attempt.failure = failure
        raise AssertionError("the attempts end with an error")

    def _finish_drop(self, marked: Ref) -> None:
        self._commit_removal(marked)
        self._swapped(marked.name, marked, None)

    def _currently_created(self, name: str) -> RefObj | None:
        """The committed record of this name, from a current read."""
        names = self._current_ref(REFS)
        if names is None:
            raise missing(REFS)
        return self._reader.created_at(names, name)

    def _is_among_names(self, ref: Ref) -> bool:
        """Cheaper than `_currently_created`, which writes: every creation pays for this check.

        It relies on `read_refs` being current, and only that: elsewhere a swap verifies it.
        """
        op = self._reader.names(self._reader.names_ref()).get(text_key(ref.name))
        return op is not None and value_of(op) == initial_state(ref).id

    # Commits on int/refs

    def _commit_name(self, ref: Ref) -> None:
        def draft(_: CommitIndex) -> Draft:
            return name_added(ref, self._persist.clock_nanos())

        try:
            self._commit(draft, [initial_state(ref)])
        except CommitConflicts:
            raise ReferenceAlreadyExists.named(short_name(ref.name)) from None

    def _commit_removal(self, ref: Ref) -> None:
        key = text_key(ref.name)

        def draft(names: CommitIndex) -> Draft | None:
            op = names.get(key)
            if op is None:
                return None  # Another process committed it already.
            if self._persist.fetch(RefObj, value_of(op)).created_micros != ref.created_micros:
                return None  # The name belongs to a newer reference by now.
            return name_removed(ref, op, self._persist.clock_nanos())

        self._commit(draft, [])

    def _commit(self, make: Callable[[CommitIndex], Draft | None], objects: Sequence[Obj]) -> None:
        commit_internal(self._persist, self._retries, REFS, make, objects)


def _check_not_internal(name: str) -> None:
    if name.startswith(INTERNAL):
        raise BadRequest(f"'{name}' is reserved for the catalog itself; choose another name")


def _moved_on(now: Ref, expected: Ref, new: Ref) -> bool:
    """Whether others moved the ref after our swap: then its previous heads include our move.

    The list of previous heads is short, so a move that was followed by many others is not found.
    """
    if now.created_micros != new.created_micros or new.pointer == expected.pointer:
        return False
    pointers = (now.pointer, *(previous.pointer for previous in now.previous))
    return any(
        pointer == new.pointer and previous in new.previous[:1]
        for pointer, previous in zip(pointers, now.previous, strict=False)
    )

"""Named references: create, find, list, move and drop them, atomically for all readers.

All names are kept as keys of the internal reference `int/refs`, by ordinary commits. Creating a
reference commits its name first and inserts its row last; dropping marks the row first, commits,
and removes the row last. The next change of that name completes a missing step: if the row of a
committed name is missing, it inserts the row; if a row is marked, it finishes the drop. Readers
complete nothing (`ReferenceReader`): a row that a slow reader inserts after a drop would be a
reference without a name.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

import msgspec

from morag.errors import (
    BadRequest,
    ReferenceAlreadyExists,
    RepositoryCorrupt,
    StoreBusy,
    StoreCannotWrite,
)
from morag.format.ids import NO_ANCESTOR
from morag.format.index_entries import payload_of, value_of
from morag.format.objects import RefObj
from morag.format.records import Ref
from morag.index.keys import text_key
from morag.logic.commits import Add, CommitConflicts, Draft, Remove
from morag.logic.internal_refs import REFS, commit_internal, internal_draft, is_unchanged_by_swap
from morag.logic.reference_reader import INTERNAL, ReferenceReader, ref_of, short_name
from morag.logic.reflog import RefOperation
from morag.model.times import instant_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from morag.backend.base import LogRow
    from morag.format.objects import Obj
    from morag.format.records import ObjId
    from morag.index.layered import CommitIndex
    from morag.logic.reflog import RefLogWriter
    from morag.logic.retry import Retries
    from morag.persist.persist import Persist


class RefMoved(Exception):
    """The reference is not at the expected commit; `ref` is its actual state."""

    def __init__(self, ref: Ref) -> None:
        super().__init__(f"'{ref.name}' is at {ref.pointer.hex()}")
        self.ref = ref


class References(ReferenceReader):
    """References that can be changed. Finding one completes interrupted changes of it."""

    def __init__(self, persist: Persist, ref_log: RefLogWriter, retries: Retries) -> None:
        super().__init__(persist)
        self._ref_log = ref_log
        self._retries = retries
        # Names change one at a time in this process; the swap decides between processes. A change
        # finds the reference first, and that may restore it.
        self._lock = RLock()

    def create(
        self, name: str, pointer: ObjId, extended_info: ObjId | None = None, who: str = ""
    ) -> Ref:
        _check_not_internal(name)
        self._persist.check_name(name)
        with self._lock:
            if self.find(name) is not None:
                raise ReferenceAlreadyExists.named(short_name(name))
            # Read the clock only now: a drop that this call waited for must not be newer.
            ref = Ref(name, pointer, False, self._persist.now_micros(), extended_info)
            line = self._ref_log.creation(ref, who)
            self._commit_name(ref)
            for _ in self._retries.attempts("create reference"):
                with self._taken_back_on_failure(ref):
                    inserted = self._swapped(name, None, ref, [line])
                if inserted:
                    # A store of one process needs no check: the lock prevents a concurrent drop.
                    if self._persist.is_shared and not self._check_until_answered(
                        self._is_among_names, ref
                    ):
                        self._take_back_if_dropped(ref)
                    return ref
                # Another server may have completed it first, perhaps from an older commit.
                found = self._persist.ref(name)
                if found is not None and found.created_micros == ref.created_micros:
                    self._persist.append_log([line])
                    return found
                self._as_completed(name, found)
        raise AssertionError("the attempts end with an error")

    def move(self, ref: Ref, pointer: ObjId, who: str = "") -> Ref:
        """Assign: point `ref` to another commit, if it has not changed since the caller read it."""
        line = self._ref_log.line(
            ref.name, RefOperation.ASSIGN_REFERENCE, ref.pointer, pointer, who
        )
        moved = self._persist.moved(ref, pointer)
        for _ in self._retries.attempts("assign reference"):
            if self._swapped(ref.name, ref, moved, [line]):
                return moved
            now = self.get(ref.name)
            if now.identity != ref.identity:
                raise RefMoved(now)
            # The caller read a reference whose row was missing. Now it is there.
        raise AssertionError("the attempts end with an error")

    def drop(self, name: str, expected: ObjId, who: str = "") -> Ref:
        _check_not_internal(name)
        with self._lock:
            ref = self.get(name)
            if ref.pointer != expected:
                raise RefMoved(ref)
            marked = msgspec.structs.replace(ref, deleted=True)
            line = self._ref_log.line(
                name, RefOperation.DELETE_REFERENCE, ref.pointer, NO_ANCESTOR, who
            )
            if not self._swapped(name, ref, marked, [line]):
                raise RefMoved(self.get(name))
            self._finish_drop(marked)
            return ref

    # Swaps whose reply may be lost

    def _swapped(
        self, name: str, expected: Ref | None, new: Ref | None, lines: Sequence[LogRow] = ()
    ) -> bool:
        """Swap, and check the store after a failure: the swap may have succeeded unnoticed."""
        may_be_done = False
        for attempt in self._retries.attempts("move reference"):
            try:
                return self._swapped_once(name, expected, new, lines, may_be_done)
            except StoreBusy as busy:
                attempt.failure, may_be_done = busy, True
        raise AssertionError("the attempts end with an error")

    def _swapped_once(
        self,
        name: str,
        expected: Ref | None,
        new: Ref | None,
        lines: Sequence[LogRow],
        may_be_done: bool = False,
    ) -> bool:
        """Like `_swapped`, but a busy store raises; `may_be_done` if an earlier try failed."""
        try:
            if self._persist.swap_ref(name, expected, new, lines):
                return True
            if not self._is_done(name, expected, new):
                return False
            # If nothing failed, another server may have made the change and logged it. Two
            # servers that log a creation write the same line.
            if may_be_done or expected is None:
                self._persist.append_log(lines)
            return True
        except StoreBusy:
            raise
        except Exception:  # After any error the swap may have succeeded.
            if not self._is_done(name, expected, new):
                raise
            self._persist.append_log(lines)
            return True

    def _is_done(self, name: str, expected: Ref | None, new: Ref | None) -> bool:
        """Whether the store is in the state after the swap, or has moved on from it."""
        now = self._current_row(name)
        if new is None:
            return now is None or expected is None or now.identity != expected.identity
        if now is not None and now.identity == new.identity:
            return True
        if new.deleted:
            # Another server finished the drop. The name is removed first, so the name decides.
            created = self._currently_created(name)
            return created is None or created.created_micros != new.created_micros
        return now is not None and expected is not None and _moved_on(now, expected, new)

    def _current_row(self, name: str) -> Ref | None:
        """The current row; a stale one is read again."""
        for _ in self._retries.attempts("read reference"):
            row = self._persist.ref(name)
            if row is None or is_unchanged_by_swap(self._persist, row):
                return row
        raise AssertionError("the attempts end with an error")

    # Completing interrupted changes

    def _dropped(self, marked: Ref) -> Ref | None:
        self._finish_drop(marked)
        return None

    def _restored(self, name: str) -> Ref | None:
        if self._created(name) is None:
            return None
        with self._lock:
            for attempt in self._retries.attempts("restore reference"):
                # Checked before each insert: another server may have dropped the name during the
                # pause, and a row that is inserted after that is visible until it is removed.
                created = self._currently_created(name)
                if created is None:
                    return None
                try:
                    return self._restored_once(ref_of(created))
                except StoreBusy as busy:
                    attempt.failure = busy
        raise AssertionError("the attempts end with an error")

    def _restored_once(self, ref: Ref) -> Ref | None:
        # The creator is unknown, but the creation must not be missing from the log.
        line = self._ref_log.creation(ref)
        with self._taken_back_on_failure(ref):
            inserted = self._swapped_once(ref.name, None, ref, [line])
        if self._take_back_if_dropped(ref):
            return None
        if inserted:
            return ref
        row = self._persist.ref(ref.name)
        return None if row is None or row.deleted else row

    @contextmanager
    def _taken_back_on_failure(self, ref: Ref) -> Iterator[None]:
        """For the insert of a row. An insert that failed may have succeeded."""
        try:
            yield
        except StoreCannotWrite:
            raise  # Nothing was written.
        except Exception:
            self._take_back_if_dropped(ref)
            raise

    def _take_back_if_dropped(self, ref: Ref) -> bool:
        """Remove a row that was inserted after its name had been dropped.

        Between the commit of the name and our insert, other servers may have inserted the row and
        dropped the reference. Then no other process would ever remove the row.
        """
        return self._check_until_answered(self._taken_back, ref)

    def _taken_back(self, ref: Ref) -> bool:
        if self._currently_created(ref.name) == _initial_state(ref):
            return False
        # A dropped name never returns with the same creation time. So the row is removed even if
        # another client found it and moved it: that move counts as made before the drop.
        row = ref
        for _ in self._retries.attempts("remove reference"):
            if self._persist.swap_ref(ref.name, row, None):
                return True
            found = self._persist.ref(ref.name)
            if found is None or found.created_micros != ref.created_micros:
                return True
            row = found
        raise AssertionError("the attempts end with an error")

    def _check_until_answered(self, check: Callable[[Ref], bool], ref: Ref) -> bool:
        """Check again after a failure: otherwise a row without a name could remain forever."""
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
        """Like `_created`, but never stale: for callers that act on it without a commit."""
        for _ in self._retries.attempts("read references"):
            ref = self._names_ref()
            created = self._created_at(ref, name)
            if ref is None or is_unchanged_by_swap(self._persist, ref):
                return created
        raise AssertionError("the attempts end with an error")

    def _is_among_names(self, ref: Ref) -> bool:
        op = self._names(self._names_ref()).get(text_key(ref.name))
        return op is not None and value_of(op) == _initial_state(ref).id

    # Commits on int/refs

    def _commit_name(self, ref: Ref) -> None:
        created, key = _initial_state(ref), text_key(ref.name)

        def draft(_: CommitIndex) -> Draft:
            message = f"Create reference {ref.name} pointing to {ref.pointer.hex()}"
            return self._draft("create", ref, message, adds=[Add(key, 0, created.id)])

        try:
            self._commit(draft, [created])
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
            message = f"Drop reference {ref.name} pointing to {ref.pointer.hex()}"
            remove = Remove(key, payload_of(op), value_of(op))
            return self._draft("delete", ref, message, removes=[remove])

        self._commit(draft, [])

    def _draft(
        self,
        operation: str,
        ref: Ref,
        message: str,
        adds: Sequence[Add] = (),
        removes: Sequence[Remove] = (),
    ) -> Draft:
        nanos = self._persist.clock_nanos()
        headers = {
            "operation": operation,
            "name": ref.name,
            "head": ref.pointer.hex(),
            "timestamp": instant_text(nanos),
            "timestamp.millis": str(nanos // 1_000_000),
        }
        return internal_draft(message, headers, adds, removes)

    def _commit(self, make: Callable[[CommitIndex], Draft | None], objects: Sequence[Obj]) -> None:
        commit_internal(self._persist, self._retries, REFS, make, objects)


def _initial_state(ref: Ref) -> RefObj:
    """The stored record of a reference that has not moved since its creation."""
    return RefObj(ref.name, ref.pointer, ref.created_micros, ref.extended_info)


def _check_not_internal(name: str) -> None:
    if name.startswith(INTERNAL):
        raise BadRequest(f"'{name}' is reserved for the catalog itself; choose another name")


def _moved_on(now: Ref, expected: Ref, new: Ref) -> bool:
    """Whether others moved the ref after our swap: then its previous heads include our move."""
    if now.created_micros != new.created_micros or new.pointer == expected.pointer:
        return False
    pointers = (now.pointer, *(previous.pointer for previous in now.previous))
    return any(
        pointer == new.pointer and previous in new.previous[:1]
        for pointer, previous in zip(pointers, now.previous, strict=False)
    )

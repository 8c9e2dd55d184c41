"""Named references: create, find, list, move and drop them, so that nothing is ever half done.

All names are kept as keys of the internal reference `int/refs`, by ordinary commits. Creating a
reference commits its name first and inserts its row last; dropping marks the row first, commits,
and removes the row last. Whoever finds a step missing makes it: the reader who misses a row that
the commit promises inserts it, the one who meets a marked row finishes the drop.
"""

from __future__ import annotations

from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Final

import msgspec

from morag.backend.base import Ref
from morag.errors import (
    BadRequest,
    ReferenceAlreadyExists,
    ReferenceNotFound,
    RepositoryCorrupt,
    StoreBusy,
    StoreCannotWrite,
)
from morag.index.keys import key_text, text_key, text_range
from morag.index.layered import index_of
from morag.index.ops import payload_of, value_of
from morag.logic.commits import Add, CommitConflicts, Draft, Remove
from morag.logic.history import head_commit
from morag.logic.internal import REFS, commit_internal, internal_draft, is_current
from morag.logic.reflog import RefOperation
from morag.model.names import split_full_name
from morag.model.times import instant_text
from morag.persist.ids import NO_ANCESTOR
from morag.persist.objects import RefObj

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from morag.backend.base import LogRow, ObjId
    from morag.index.layered import CommitIndex
    from morag.logic.reflog import RefLog
    from morag.logic.retry import Retries
    from morag.persist.objects import Obj
    from morag.persist.persist import Persist

INTERNAL: Final = "int/"
_ROWS_AT_ONCE: Final = 100


class RefMoved(Exception):
    """The reference is not where the caller expected it; `ref` is how it was found."""

    def __init__(self, ref: Ref) -> None:
        super().__init__(f"'{ref.name}' is at {ref.pointer.hex()}")
        self.ref = ref


class References:
    """References by their full names, such as `refs/heads/main`."""

    def __init__(self, persist: Persist, ref_log: RefLog, retries: Retries) -> None:
        self._persist = persist
        self._ref_log = ref_log
        self._retries = retries
        # Names change one after the other in this process; other processes meet in the swap.
        self._lock = Lock()

    def find(self, name: str) -> Ref | None:
        return self.find_all([name])[0]

    def find_all(self, names: list[str]) -> list[Ref | None]:
        """The references as they are, after mending what was cut short."""
        rows = self._persist.refs(names)
        return [self._mended(name, rows.get(name)) for name in names]

    def find_first(self, names: list[str]) -> Ref | None:
        """The first of the names that exists, read in one go."""
        rows = self._persist.refs(names)
        for name in names:
            ref = self._mended(name, rows.get(name))
            if ref is not None:
                return ref
        return None

    def get(self, name: str) -> Ref:
        ref = self.find(name)
        if ref is None:
            raise ReferenceNotFound.named(_short(name))
        return ref

    def list(
        self, prefix: str = "", start: str | None = None, end: str | None = None
    ) -> Iterator[Ref]:
        """References in the order of their names, from `start` on, up to `end` inclusive."""
        entries = self._names(self._names_ref()).items(text_range(prefix, start, end))
        names = (key_text(key) for key, _ in entries)
        while batch := list(islice(names, _ROWS_AT_ONCE)):
            yield from (ref for ref in self.find_all(batch) if ref is not None)

    def create(
        self, name: str, pointer: ObjId, extended_info: ObjId | None = None, who: str = ""
    ) -> Ref:
        _check_not_internal(name)
        self._persist.check_name(name)
        with self._lock:
            if self.find(name) is not None:
                raise ReferenceAlreadyExists.named(_short(name))
            # Only now: a drop that we had to wait for must not seem younger than this.
            ref = Ref(name, pointer, False, self._persist.now_micros(), extended_info)
            line = self._ref_log.creation(ref, who)
            self._commit_name(ref)
            for _ in self._retries.attempts("create reference"):
                if self._inserted(ref, line):
                    # A store of one process needs no check: the lock keeps others from dropping it.
                    if self._persist.is_shared and not self._insist(self._is_among_names, ref):
                        self._take_back_if_dropped(ref)
                    return ref
                # A reader may have mended it before we came to it, perhaps from an older commit.
                found = self._persist.ref(name)
                if found is not None and found.created_micros == ref.created_micros:
                    self._persist.append_log([line])
                    return found
                self._mended(name, found)
        raise AssertionError("the attempts end by an error")

    def move(self, ref: Ref, pointer: ObjId, who: str = "") -> Ref:
        """Assign: point `ref` elsewhere, if it is still as the caller saw it."""
        line = self._ref_log.line(
            ref.name, RefOperation.ASSIGN_REFERENCE, ref.pointer, pointer, who
        )
        moved = self._persist.moved(ref, pointer)
        if not self._swapped(ref.name, ref, moved, [line]):
            raise RefMoved(self.get(ref.name))
        return moved

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
        """Swap, and look before a failure is believed: the reply may be lost, but not the deed."""
        may_be_done = False
        for attempt in self._retries.attempts("move reference"):
            try:
                if self._persist.swap_ref(name, expected, new, lines):
                    return True
                if not self._is_done(name, expected, new):
                    return False
                # Without a failure another server may have made the change and logged it. Two
                # servers that log a creation write the same line.
                if may_be_done or expected is None:
                    self._persist.append_log(lines)
                return True
            except StoreBusy as busy:
                attempt.failure, may_be_done = busy, True
            except Exception:
                if not self._is_done(name, expected, new):
                    raise
                self._persist.append_log(lines)
                return True
        raise AssertionError("the attempts end by an error")

    def _is_done(self, name: str, expected: Ref | None, new: Ref | None) -> bool:
        """Whether the store is as the swap would have left it, or was so and went on from there."""
        now = self._row_for_sure(name)
        if new is None:
            return now is None or expected is None or now.identity != expected.identity
        if now is not None and now.identity == new.identity:
            return True
        if new.deleted:
            # Another finished the drop. The name goes before the row, so it is the name that tells.
            created = self._created_for_sure(name)
            return created is None or created.created_micros != new.created_micros
        return now is not None and expected is not None and _went_on(now, expected, new)

    def _row_for_sure(self, name: str) -> Ref | None:
        """The row as it is; one that seems absent may only be too young to be seen."""
        for _ in self._retries.attempts("read reference"):
            row = self._persist.ref(name)
            if row is None or is_current(self._persist, row):
                return row
        raise AssertionError("the attempts end by an error")

    # Mending

    def _mended(self, name: str, row: Ref | None) -> Ref | None:
        if name.startswith(INTERNAL):
            return None  # Never shown, whatever the row says.
        if row is None:
            return self._restored(name)
        if row.deleted:
            if not self._persist.read_only:
                self._finish_drop(row)
            return None
        return row

    def _restored(self, name: str) -> Ref | None:
        """The row of a name that was committed but not inserted."""
        created = self._created(name)
        if created is not None and not self._persist.read_only:
            created = self._created_for_sure(name)
        if created is None:
            return None
        ref = Ref(
            name, created.initial_pointer, False, created.created_micros, created.extended_info
        )
        if self._persist.read_only:
            return ref  # As if it had been inserted: who comes to write will do it.
        # Who created it is not known, but that somebody did shall not be missing from the log.
        inserted = self._inserted(ref, self._ref_log.creation(ref))
        if self._take_back_if_dropped(ref):
            return None
        if inserted:
            return ref
        row = self._persist.ref(name)
        return None if row is None or row.deleted else row

    def _inserted(self, ref: Ref, line: LogRow) -> bool:
        """Insert the row of a committed name. An insert that failed may have been made."""
        try:
            return self._swapped(ref.name, None, ref, [line])
        except StoreCannotWrite:
            raise  # Nothing was written.
        except Exception:
            self._take_back_if_dropped(ref)
            raise

    def _take_back_if_dropped(self, ref: Ref) -> bool:
        """Remove a row that was inserted after its name had been dropped.

        A reader may have inserted the row first, and another server dropped the reference, all
        between the commit of the name and our insert. Then nobody else would ever remove the row.
        """
        return self._insist(self._taken_back, ref)

    def _taken_back(self, ref: Ref) -> bool:
        if self._created_for_sure(ref.name) == _created(ref):
            return False
        self._persist.swap_ref(ref.name, ref, None)
        return True

    def _insist(self, check: Callable[[Ref], bool], ref: Ref) -> bool:
        """Check again after a failure: giving up could leave a row without a name for good."""
        for attempt in self._retries.attempts("create reference"):
            try:
                return check(ref)
            except (StoreCannotWrite, RepositoryCorrupt):
                raise  # The next try would fail as well.
            except Exception as failure:  # noqa: BLE001 - raised by the last attempt.
                attempt.failure = failure
        raise AssertionError("the attempts end by an error")

    def _finish_drop(self, marked: Ref) -> None:
        self._commit_removal(marked)
        self._swapped(marked.name, marked, None)

    def _created(self, name: str) -> RefObj | None:
        """What the names say about this one, or None if it is not among them."""
        return self._created_at(self._names_ref(), name)

    def _created_for_sure(self, name: str) -> RefObj | None:
        """The same for one who acts on it without a commit: what was true before may do harm."""
        for _ in self._retries.attempts("read references"):
            ref = self._names_ref()
            created = self._created_at(ref, name)
            if ref is None or is_current(self._persist, ref):
                return created
        raise AssertionError("the attempts end by an error")

    def _created_at(self, names: Ref | None, name: str) -> RefObj | None:
        op = self._names(names).get(text_key(name))
        return None if op is None else self._persist.fetch(RefObj, value_of(op))

    def _is_among_names(self, ref: Ref) -> bool:
        op = self._names(self._names_ref()).get(text_key(ref.name))
        return op is not None and value_of(op) == _created(ref).id

    # Commits on int/refs

    def _names_ref(self) -> Ref | None:
        return self._persist.ref(REFS)

    def _names(self, ref: Ref | None) -> CommitIndex:
        head = NO_ANCESTOR if ref is None else ref.pointer
        return index_of(self._persist, head_commit(self._persist, head))

    def _commit_name(self, ref: Ref) -> None:
        created, key = _created(ref), text_key(ref.name)

        def draft(_: CommitIndex) -> Draft:
            message = f"Create reference {ref.name} pointing to {ref.pointer.hex()}"
            return self._draft("create", ref, message, adds=[Add(key, 0, created.id)])

        try:
            self._commit(draft, [created])
        except CommitConflicts:
            raise ReferenceAlreadyExists.named(_short(ref.name)) from None

    def _commit_removal(self, ref: Ref) -> None:
        key = text_key(ref.name)

        def draft(names: CommitIndex) -> Draft | None:
            op = names.get(key)
            if op is None:
                return None  # Somebody else committed it already.
            if self._persist.fetch(RefObj, value_of(op)).created_micros != ref.created_micros:
                return None  # The name stands for a younger reference by now.
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


def _created(ref: Ref) -> RefObj:
    """What is stored about the creation of a reference, which was not moved since."""
    return RefObj(ref.name, ref.pointer, ref.created_micros, ref.extended_info)


def _check_not_internal(name: str) -> None:
    if name.startswith(INTERNAL):
        raise BadRequest(f"'{name}' is reserved for the catalog itself; choose another name")


def _short(name: str) -> str:
    """The name as users know it."""
    split = split_full_name(name)
    return name if split is None else split[1]


def _went_on(now: Ref, expected: Ref, new: Ref) -> bool:
    """Whether `now` was `new` before others moved it: then it remembers our very move."""
    if now.created_micros != new.created_micros or new.pointer == expected.pointer:
        return False
    pointers = (now.pointer, *(previous.pointer for previous in now.previous))
    return any(
        pointer == new.pointer and previous in new.previous[:1]
        for pointer, previous in zip(pointers, now.previous, strict=False)
    )

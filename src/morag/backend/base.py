"""The contract of storage backends, and the records that they store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, runtime_checkable

from msgspec import Struct

from morag.format.records import UNIQUE_KIND as UNIQUE_KIND
from morag.format.records import ObjId as ObjId
from morag.format.records import PreviousPointer as PreviousPointer
from morag.format.records import Ref as Ref
from morag.format.records import Row as Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class RefSwap(Struct, frozen=True):
    """Replace `expected` by `new`; `None` stands for absent."""

    name: str
    expected: Ref | None
    new: Ref | None


class Applied(Struct, frozen=True):
    """The result of `apply`. If `swapped` is false, nothing was written."""

    swapped: bool
    new: frozenset[ObjId] = frozenset()


class LogRow(Struct, frozen=True, gc=False):
    """One line of the ref-log. Keys rise with time; the data is opaque here."""

    key: bytes
    data: bytes


class Slice(Struct, frozen=True):
    """Part `index` of `count`. The engine decides how to divide; the parts cover everything."""

    index: int = 0
    count: int = 1


WHOLE: Final = Slice()


class Limits(Struct, frozen=True):
    """The limits of an engine: rows and bytes in one call, bytes in one row.

    `bytes_at_once` counts data; an engine leaves room for keys and framing.
    """

    rows_at_once: int
    bytes_at_once: int
    row_bytes: int


@runtime_checkable
class Private(Protocol):
    """A store that no other process can change while this one has it open.

    The engine declares the same as a trait (`engines.Traits.private`).
    """

    is_private: Literal[True]


@runtime_checkable
class LimitsRows(Protocol):
    """A backend that limits the data of one row. Larger objects are never created."""

    row_bytes: int


@runtime_checkable
class LimitsNames(Protocol):
    """A backend that limits the full name of a ref, in characters.

    The name of a ref is committed before the ref is stored, so a name that could not be stored must
    be refused before that.
    """

    most_name_characters: int


class Backend(Protocol):
    """A durable place for refs and rows, shared by any number of threads.

    Every method is atomic for one ref or one row and promises nothing across several: the kernel
    writes objects first and swaps a ref last, so a crash leaves garbage, never a dangling pointer.
    A call that returned is durable. After an error of the database the outcome of a call is
    unknown: it may or may not have been applied. Two meanings have an error of their own, because
    callers treat them differently: `StoreBusy` is retried, `StoreCannotWrite` is reported to
    operators.
    """

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        """The current refs: never older than a swap that returned before the call."""
        ...

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        """Replace `swap.expected` by `swap.new` if the stored ref has the `identity` of `expected`.

        This one method creates, moves and deletes.
        """
        ...

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]: ...

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        """Add the rows whose id is not stored yet; return the ids that were new.

        A row that was there already gets the new `referenced_micros` and keeps everything else.
        """
        ...

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        """Replace or delete the row with the id, kind and version of `expected`, if it is there."""
        ...

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None: ...

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        """Delete the rows that were not written again since they were read; return their ids.

        A row stays if its kind, version or `referenced_micros` is no longer that of the given row.
        So a row stays after an `insert_rows` that found it and returned before this call. If both
        run at the same time, the row is there afterwards: it stays, or is inserted anew.
        """
        ...

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        """Every row of the part, in no order; only the given kinds if any are given.

        A row that cannot be decoded has the kind `UNREADABLE_KIND` (`format/rows.py`), or raises an
        error if kinds are given. May be slow. Rows inserted or deleted meanwhile may or may not be
        seen.
        """
        ...

    def erase(self, repo: str) -> None:
        """Remove every ref, row and log line of the repository."""
        ...

    def close(self) -> None: ...


def is_unchanged(stored: Row | None, row: Row) -> bool:
    """Whether `delete_unreferenced` deletes the stored row if it is given the other one."""
    return (
        stored is not None
        and stored.referenced_micros == row.referenced_micros
        and stored.version == row.version
        and stored.kind == row.kind
    )


@runtime_checkable
class AppliesAtOnce(Protocol):
    """A backend that can insert rows and swap one ref atomically, in one round trip."""

    def apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied:
        """Insert the rows, swap the ref and append to the ref-log: all or nothing.

        Nothing is written if the swap's expectation does not hold or if a row of kind
        `UNIQUE_KIND` is stored already. Either way `new` then names those unique rows that would
        have been new, so that a caller can distinguish a lost race from a taken value.
        """
        ...


@runtime_checkable
class SwapsTogether(Protocol):
    """A backend that can insert rows and swap several refs atomically, in one call."""

    def apply_all(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow] = ()
    ) -> bool:
        """Insert the rows, swap all refs and append to the ref-log: all or nothing.

        False, and nothing is written, if the expectation of a swap does not hold. The swaps are of
        different refs, each of them changes something, and no row is of kind `UNIQUE_KIND`.
        """
        ...


@runtime_checkable
class SyncsLater(AppliesAtOnce, Protocol):
    """A backend that writes within microseconds; only the sync afterwards waits for the disk.

    So an event loop can write, and a thread is needed only for `sync`, once for many writes.
    """

    @property
    def needs_sync(self) -> bool:
        """Whether a write may be lost without a `sync` after it."""
        ...

    def try_apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied | None:
        """Like `apply`, but never waits. None if it would have to: then nothing was written.

        The write is durable, and readers get the new ref, when a later `sync` has returned.
        """
        ...

    def sync(self) -> None:
        """Make everything durable that was written so far."""
        ...


@runtime_checkable
class QuickSwapsTogether(SyncsLater, SwapsTogether, Protocol):
    """A backend that can also swap several refs without waiting."""

    def try_apply_all(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow] = ()
    ) -> bool | None:
        """Like `apply_all`, but never waits; see `try_apply`."""
        ...


@runtime_checkable
class ChecksWritable(Protocol):
    """A backend that may refuse writes while it still reads, for instance when its disk is full."""

    def check_writable(self) -> None:
        """Raise `StoreCannotWrite` as long as writes fail.

        Readiness probes may call it often, so it costs little while writes succeed, and never makes
        writers wait.
        """
        ...


@runtime_checkable
class KeepsRefLog(Protocol):
    """A backend that keeps the ref-log, in a table that Nessie does not read."""

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        """Add lines. Of two lines with the same key either may stay."""
        ...

    def read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        """The newest lines first, only keys smaller than `before` if that is given."""
        ...

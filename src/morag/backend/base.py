"""What a storage backend must do, and nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NewType, Protocol, runtime_checkable

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ObjId = NewType("ObjId", bytes)

UNIQUE_KIND = "u"
"""The one kind of row that must be new when it is inserted through `apply`."""


class PreviousPointer(Struct, frozen=True, gc=False):
    """Where a ref pointed before, and until when."""

    pointer: ObjId
    until_micros: int


class Ref(Struct, frozen=True, gc=False):
    """A named pointer to a commit: the only thing in a repository that ever changes."""

    name: str
    pointer: ObjId
    deleted: bool = False
    created_micros: int = 0
    extended_info: ObjId | None = None
    previous: tuple[PreviousPointer, ...] = ()

    @property
    def identity(self) -> tuple[str, ObjId, bool, int, ObjId | None]:
        """What a conditional swap compares. `previous` is history, not identity."""
        return self.name, self.pointer, self.deleted, self.created_micros, self.extended_info


class Row(Struct, frozen=True, gc=False):
    """A stored object.

    `data` is Nessie's ObjProto without its last field, `referenced`: each engine keeps that time
    where Nessie keeps it. Two rows with one id hold the same object, so a row is never
    edited; only custom kinds carry a `version` and may be swapped.
    """

    id: ObjId
    kind: str
    data: bytes
    version: str | None = None
    referenced_micros: int = 0


class RefSwap(Struct, frozen=True):
    """Replace `expected` by `new`; `None` stands for absent."""

    name: str
    expected: Ref | None
    new: Ref | None


class Applied(Struct, frozen=True):
    """What `apply` did. Not swapped means: nothing was written."""

    swapped: bool
    new: frozenset[ObjId] = frozenset()


class LogRow(Struct, frozen=True, gc=False):
    """One line of the ref-log. Keys rise with time and are unique; the data is opaque here."""

    key: bytes
    data: bytes


class Slice(Struct, frozen=True):
    """Part `index` of `count`. The engine decides what a part is; together they are everything."""

    index: int = 0
    count: int = 1


WHOLE: Final = Slice()


class Limits(Struct, frozen=True):
    """What an engine takes at the most: rows and bytes in one call, bytes in one row.

    `bytes_at_once` counts data; an engine leaves room for what it puts around it.
    """

    rows_at_once: int
    bytes_at_once: int
    row_bytes: int


@runtime_checkable
class Private(Protocol):
    """A store that no other process can change while this one has it open."""

    is_private: Literal[True]


@runtime_checkable
class LimitsRows(Protocol):
    """A backend that says how large the data of one row may be. Larger objects are not made."""

    row_bytes: int


@runtime_checkable
class LimitsNames(Protocol):
    """A backend that says how long the full name of a ref may be, in characters.

    The name of a ref is committed before the ref is stored, so one that could not be stored then
    has to be refused before.
    """

    most_name_characters: int


class Backend(Protocol):
    """A durable place for refs and rows, shared by any number of threads.

    Every method is atomic for one ref or one row and promises nothing across several: the kernel
    writes objects first and swaps a ref last, so a crash leaves garbage, never a dangling pointer.
    What returned is durable. Errors of the database itself pass through unchanged, and then the
    outcome is unknown: it may or may not have been applied. Two kinds get a name, because callers
    treat them otherwise: `StoreBusy` is tried again, `StoreCannotWrite` is reported to operators.
    """

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]: ...

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        """Replace `swap.expected` by `swap.new` if what is stored now has its `identity`.

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

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        """Every row of the part, in no order; only the given kinds if any are given.

        May be slow. Rows inserted or deleted meanwhile may or may not be seen.
        """
        ...

    def erase(self, repo: str) -> None:
        """Remove every ref, row and log line of the repository."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class AppliesAtOnce(Protocol):
    """A backend that can insert rows and swap one ref atomically, in one round trip."""

    def apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied:
        """Insert the rows, swap the ref and append to the ref-log: all or nothing.

        Nothing is written if the swap's expectation does not hold or if a row of kind
        `UNIQUE_KIND` is stored already. Either way `new` then names those unique rows that would
        have been new, which tells a lost race from a taken value.
        """
        ...


@runtime_checkable
class TellsWhetherItWrites(Protocol):
    """A backend that can come to refuse writes while it still reads, as when its disk is full."""

    def check_writable(self) -> None:
        """Raise `StoreCannotWrite` as long as writes fail.

        Readiness probes call it as often as they like, so it costs little while writes succeed, and
        never keeps writers waiting.
        """
        ...


@runtime_checkable
class KeepsRefLog(Protocol):
    """A backend that keeps the ref-log, in a place where Nessie does not look."""

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None: ...

    def read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        """The newest lines first, only keys smaller than `before` if that is given."""
        ...

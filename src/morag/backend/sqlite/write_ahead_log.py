"""Checks that SQLite's log and database hold all that was committed, before SQLite reads them.

The log is a header and frames, each with a page of the database. The checksum of a frame covers all
frames before it. SQLite drops all frames from the first wrong one on, since a crash may have left
it unfinished. After a kill, the shared memory has the number of committed frames. After a crash of
the machine it does not; but then no transactions follow an unfinished frame, and more than one word
of it is wrong.
"""

from __future__ import annotations

import struct
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from morag.backend.sqlite.shared_memory import is_in_use, read_committed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

Sums: TypeAlias = tuple[int, int]

LOG: Final = "-wal"

_HEADER: Final = struct.Struct(">8I")
_SUMMED_HEADER_BYTES: Final = 24
_FRAME: Final = struct.Struct(">6I")
_SUMMED_FRAME_BYTES: Final = 8
_MAGIC: Final = 0x377F0682
"""Marks a log whose checksums read words as little-endian; this plus one: as big-endian."""
_VERSION: Final = 3007000
_ALL: Final = 0xFFFFFFFF
_SALT: Final = slice(16, 24)
_PIECE_BYTES: Final = 1 << 16
_FREE_PAGES: Final = slice(36, 40)
"""The position of the number of unused pages in the first page of a database."""
_LOCKED_BYTE: Final = 1 << 30
"""SQLite never writes the page with this byte, because it locks it."""


class LostTransactions(Struct, frozen=True):
    """The place in the log where SQLite would stop reading, and why committed frames follow it."""

    offset: int
    reason: str

    def __str__(self) -> str:
        return f"is damaged at byte {self.offset}: {self.reason}"


_WRONG_HEADER: Final = LostTransactions(0, "its header is wrong")


class LostPages(Struct, frozen=True):
    """Pages that are neither in the database, which was cut off, nor in its log."""

    count: int

    def __str__(self) -> str:
        return f"is cut off: {self.count} of its pages are missing"


class _Frame(Struct, frozen=True):
    offset: int
    page: int
    database_pages: int
    """The size of the database after the transaction that ends here; otherwise 0."""
    salt: Sums
    sums: Sums
    summed: bytes
    """The bytes that the checksum covers."""

    @property
    def ends_transaction(self) -> bool:
        return self.database_pages != 0

    @property
    def content(self) -> bytes:
        return self.summed[_SUMMED_FRAME_BYTES:]


def find_damage(database: Path) -> LostTransactions | LostPages | None:
    """The damage of a database that is not open, or of its log.

    While a process has it open, the log changes while it is read here, and SQLite will not read it
    from its beginning. So damage counts only if no process has opened the database meanwhile.
    """
    if is_in_use(database):
        return None
    damage = _find_damage(database)
    if damage is None or is_in_use(database) or _find_damage(database) != damage:
        return None
    return damage


def _find_damage(database: Path) -> LostTransactions | LostPages | None:
    try:
        with database.with_name(database.name + LOG).open("rb") as log:
            reading = _read(log)
    except FileNotFoundError:
        reading = _Reading()
    committed = read_committed(database)
    if committed is None or reading.frames is None:
        return reading.suspicion or _lost_pages(database, reading)
    if reading.salt not in (b"", committed.salt):
        return None  # The log is older, and all of it is in the database.
    if reading.frames >= committed.frames:
        return _lost_pages(database, reading)
    if not reading.frames and committed.frames <= committed.copied:
        return None
    reason = f"{committed.frames} frames were committed, of which {reading.frames} are left"
    return LostTransactions(reading.end, reason)


def _lost_pages(database: Path, reading: _Reading) -> LostPages | None:
    """SQLite reads pages after the end of the file as zeros, if they exist according to the log."""
    state = reading.state
    if state is None:
        return None
    there = database.stat().st_size // state.page_bytes
    behind = range(there + 1, state.database_pages + 1)
    locked = _LOCKED_BYTE // state.page_bytes + 1
    missing = len(behind) - sum(page in behind for page in {locked, *state.logged_pages})
    if not missing:
        return None
    first_page = state.first_page
    if first_page is None:
        with database.open("rb") as file:
            first_page = file.read(state.page_bytes)
    # A page that became unused in the transaction that added it was never written.
    return LostPages(missing) if missing > int.from_bytes(first_page[_FREE_PAGES]) else None


class _State(Struct, frozen=True):
    """The state of the database after the last transaction in the log."""

    page_bytes: int
    database_pages: int
    first_page: bytes | None
    """`None` if it is not in the log."""
    logged_pages: frozenset[int]


class _Reading(Struct, frozen=True):
    """The frames that SQLite would read, the byte where they end, and signs of more of them.

    A suspicion counts only if the number of committed frames is not known. After a kill it may be
    wrong: a process may leave half of a frame over half of an older one, or transactions that
    failed.
    """

    frames: int | None = 0
    """`None` if the header is wrong."""
    end: int = 0
    salt: bytes = b""
    suspicion: LostTransactions | None = None
    state: _State | None = None


def _read(log: BinaryIO) -> _Reading:
    header = log.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return _Reading()
    magic, version, page_bytes, _, *salt_and_sums = _HEADER.unpack(header)
    salt = salt_and_sums[0], salt_and_sums[1]
    words = "<II" if magic == _MAGIC else ">II"
    state = _added((0, 0), header[:_SUMMED_HEADER_BYTES], words)
    if magic & ~1 != _MAGIC or version != _VERSION or [*state] != salt_and_sums[2:]:
        # SQLite syncs the header before it writes frames, so a crash cannot have torn it.
        pieces = iter(lambda: log.read(_PIECE_BYTES), b"")
        is_empty = not any(piece.strip(b"\0") for piece in pieces)
        return _Reading() if is_empty else _Reading(None, 0, b"", _WRONG_HEADER)
    frames, taken, end = _frames(log, page_bytes), 0, _HEADER.size
    logged: list[int] = []
    first_page: bytes | None = None
    suspicion = after = None
    for index, frame in enumerate(frames):
        state = _added(state, frame.summed, words)
        if frame.salt != salt or frame.sums != state:
            suspicion = _lost_by(frame, frames, salt, state)
            end = frame.offset
            break
        end = log.tell()
        logged.append(frame.page)
        if frame.page == 1:
            first_page = frame.content
        if frame.ends_transaction:
            taken = index + 1
            after = frame.database_pages, first_page
    if after is None:
        return _Reading(taken, end, header[_SALT], suspicion)
    state_after = _State(page_bytes, *after, frozenset(logged[:taken]))
    return _Reading(taken, end, header[_SALT], suspicion, state_after)


def _frames(log: BinaryIO, page_bytes: int) -> Iterator[_Frame]:
    size = _FRAME.size + page_bytes
    while len(held := log.read(size)) == size:
        page, database_pages, *rest = _FRAME.unpack_from(held)
        yield _Frame(
            offset=log.tell() - size,
            page=page,
            database_pages=database_pages,
            salt=(rest[0], rest[1]),
            sums=(rest[2], rest[3]),
            summed=held[:_SUMMED_FRAME_BYTES] + held[_FRAME.size :],
        )


def _lost_by(
    wrong: _Frame, later: Iterator[_Frame], salt: Sums, state: Sums
) -> LostTransactions | None:
    """The loss if SQLite stops at a frame. Frames of an older log have another salt."""
    ends = [frame.ends_transaction for frame in chain([wrong], later) if frame.salt == salt]
    if any(ends[:-1]):
        return LostTransactions(wrong.offset, f"{sum(ends)} transactions follow a wrong frame")
    if _is_wrong_in_one_word(wrong, salt, state):
        return LostTransactions(wrong.offset, "a word of a frame is wrong")
    return None


def _added(state: Sums, summed: bytes, words: str) -> Sums:
    first, second = state
    for one, other in struct.iter_unpack(words, summed):
        first = (first + one + second) & _ALL
        second = (second + other + first) & _ALL
    return first, second


def _is_wrong_in_one_word(frame: _Frame, salt: Sums, state: Sums) -> bool:
    """Whether only one word of the frame is wrong: of its salt, its sums or its data.

    An unfinished frame lacks more than that. A word that `n` others follow counts F(n) times in the
    first sum and F(n + 1) times in the second, with F for Fibonacci's numbers. If it is wrong by
    some number, the sums are wrong by that number times these factors. One of the factors is odd,
    so comparing the products crosswise is enough.
    """
    if frame.sums == state:
        return True
    if frame.salt != salt:
        return False
    first, second = ((mine - its) & _ALL for mine, its in zip(state, frame.sums, strict=True))
    if not first or not second:
        return True
    factor, next_factor = 0, 1
    for _ in range(len(frame.summed) // 4):
        if (first * next_factor - second * factor) & _ALL == 0:
            return True
        factor, next_factor = next_factor, (factor + next_factor) & _ALL
    return False

"""The ref-log: which reference moved from where to where, when, and by which operation."""

from __future__ import annotations

from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from morag.backend.base import LogRow
from morag.errors import BadRequest, RepositoryCorrupt
from morag.format.damage import UNREADABLE
from morag.format.ids import NO_ANCESTOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.format.records import ObjId, Ref
    from morag.persist.persist import Persist


class RefOperation(Enum):
    COMMIT = "COMMIT"
    MERGE = "MERGE"
    TRANSPLANT = "TRANSPLANT"
    CREATE_REFERENCE = "CREATE_REFERENCE"
    DELETE_REFERENCE = "DELETE_REFERENCE"
    ASSIGN_REFERENCE = "ASSIGN_REFERENCE"


class RefMove(Struct, frozen=True, array_like=True):
    """One move. A lane's batch of commits is one move; `commits` counts them.

    Stored in this form: only append fields, with a default. Nothing else protects a line, so it has
    a checksum over itself and its key; 0 means none, as in lines of early versions.
    """

    name: str
    operation: RefOperation
    before: bytes
    after: bytes
    who: str
    at_micros: int
    commits: int = 0
    checksum: int = 0


class RefLogWriter:
    """Builds the lines, which are written together with the moves."""

    def __init__(self, persist: Persist, random_bytes: Callable[[int], bytes]) -> None:
        self._persist = persist
        self._random_bytes = random_bytes

    def line(
        self,
        name: str,
        operation: RefOperation,
        before: ObjId = NO_ANCESTOR,
        after: ObjId = NO_ANCESTOR,
        who: str = "",
        commits: int = 0,
    ) -> LogRow:
        """The line to write together with a move."""
        nanos = self._persist.clock_nanos()
        move = RefMove(name, operation, before, after, who, nanos // 1000, commits)
        # The time first, for the sort order; then random bytes, so that servers do not collide.
        return _row(nanos.to_bytes(8, "big") + self._random_bytes(4), move)

    def creation(self, ref: Ref, who: str = "") -> LogRow:
        """The line of a creation, under the same key for every writer.

        A server that completes the creation for its creator writes it without the author. Because
        of the key there is only one line, and which of two stays depends on the engine.
        """
        at, name = ref.created_micros, ref.name
        move = RefMove(name, RefOperation.CREATE_REFERENCE, NO_ANCESTOR, ref.pointer, who, at)
        suffix = sha256(name.encode()).digest()[:4]  # Instead of random bytes.
        return _row((at * 1000).to_bytes(8, "big") + suffix, move)

    def removal(self, ref: Ref, who: str = "") -> LogRow:
        """The line of a drop."""
        return self.line(ref.name, RefOperation.DELETE_REFERENCE, ref.pointer, NO_ANCESTOR, who)

    def has(self, line: LogRow) -> bool:
        """Whether the log has a line with this key."""
        after = (int.from_bytes(line.key, "big") + 1).to_bytes(len(line.key), "big")
        return any(found.key == line.key for found in self._persist.read_log(after, 1))


def read_moves(
    persist: Persist, before: str | None = None, limit: int = 100
) -> tuple[list[RefMove], str | None]:
    """Moves, newest first, and the token of the next page; no token at the end."""
    try:
        key = None if before is None else bytes.fromhex(before)
    except ValueError:
        raise BadRequest("Invalid token string representation") from None
    rows = persist.read_log(key, limit + 1)
    token = rows[limit - 1].key.hex() if len(rows) > limit else None
    return [move_of(row) for row in rows[:limit]], token


def move_of(row: LogRow) -> RefMove:
    """The move in a line, which is checked."""
    line = f"Line {row.key.hex()} of the ref-log"
    try:
        move = _decode(row.data)
    except (*UNREADABLE, msgspec.MsgspecError) as damage:
        raise RepositoryCorrupt.found(line, f"is not readable ({damage})") from damage
    if move.checksum and move.checksum != _checksum(row.key, move):
        raise RepositoryCorrupt.found(line, "is damaged: its checksum is wrong")
    return move


def line_of(move: RefMove) -> LogRow:
    """The line of a move that another store has logged: always the same for the same move."""
    suffix = sha256(_encode(move)).digest()[:4]
    return _row((move.at_micros * 1000).to_bytes(8, "big") + suffix, move)


def _row(key: bytes, move: RefMove) -> LogRow:
    return LogRow(key, _encode(replace(move, checksum=_checksum(key, move))))


def _checksum(key: bytes, move: RefMove) -> int:
    """The checksum of exactly these fields: later fields must not change it for older lines."""
    texts = [move.name, move.operation.value, move.before.hex(), move.after.hex(), move.who]
    covered = "\0".join([*texts, str(move.at_micros), str(move.commits)])
    return crc32(covered.encode(), crc32(key))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RefMove).decode

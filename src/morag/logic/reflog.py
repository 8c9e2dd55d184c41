"""The ref-log: who moved which reference from where to where, when, and by which operation."""

from __future__ import annotations

from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from morag.backend.base import LogRow, ObjId
from morag.errors import BadRequest
from morag.persist.ids import NO_ANCESTOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.backend.base import Ref
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

    Stored as it stands: only append fields, with a default.
    """

    name: str
    operation: RefOperation
    before: bytes
    after: bytes
    who: str
    at_micros: int
    commits: int = 0


class RefLog:
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
        """A line to be written together with the move it tells of."""
        nanos = self._persist.clock_nanos()
        move = RefMove(name, operation, before, after, who, nanos // 1000, commits)
        # Time first, so that lines sort by it; then chance, so that servers do not meet.
        return LogRow(nanos.to_bytes(8, "big") + self._random_bytes(4), _encode(move))

    def creation(self, ref: Ref, who: str = "") -> LogRow:
        """The line of a creation, under the same key whoever writes it.

        A reader who inserts the row in the creator's place also writes the line: it stays one.
        """
        at, name = ref.created_micros, ref.name
        move = RefMove(name, RefOperation.CREATE_REFERENCE, NO_ANCESTOR, ref.pointer, who, at)
        chance = sha256(name.encode()).digest()[:4]
        return LogRow((at * 1000).to_bytes(8, "big") + chance, _encode(move))

    def read(self, before: str | None = None, limit: int = 100) -> tuple[list[RefMove], str | None]:
        """Moves, newest first, and the token to go on with; no token at the end."""
        try:
            key = None if before is None else bytes.fromhex(before)
        except ValueError:
            raise BadRequest("Invalid token string representation") from None
        rows = self._persist.read_log(key, limit + 1)
        token = rows[limit - 1].key.hex() if len(rows) > limit else None
        return [_decode(row.data) for row in rows[:limit]], token


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RefMove).decode

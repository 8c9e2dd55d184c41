"""What the SQL engines do alike that are reached through a network."""

from __future__ import annotations

from abc import abstractmethod
from threading import Event, get_ident
from typing import TYPE_CHECKING, Any, Final, TypeVar

from morag.backend.sql_backend import SqlBackend
from morag.errors import StoreBusy, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from morag.backend.base import LogRow, Row
    from morag.backend.sql import Statement
    from morag.backend.sql_backend import Records
    from morag.backend.sql_pool import Pool

T = TypeVar("T")

_TRIES: Final = 6
_PAUSE_SECONDS: Final = 0.005


class Restart(Exception):
    """The database undid a transaction that stood in the way of another: it is to be run again."""


class Broken(StoreUnreachable):
    """The connection broke while it was used: another one may work."""


class RemoteSqlBackend(SqlBackend):
    """Reads are done again if their connection breaks. Writes are not: they may have been done."""

    def __init__(self, pool: Pool[Any], keeps_log: bool) -> None:
        self._pool = pool
        self._keeps_log = keeps_log

    @abstractmethod
    def _run(self, statement: Statement) -> tuple[Records, int]:
        """What the statement found, and how many records it changed.

        Raises `Restart` where the database wants the same again, and `Broken` where it is unknown
        what became of it.
        """

    def close(self) -> None:
        self._pool.close()

    def read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        return super().read_log(repo, before, limit) if self._keeps_log else []

    def _select(self, statement: Statement) -> Records:
        return self._read(lambda: self._run(statement)[0])

    def _change(self, statement: Statement) -> int:
        return self._write(lambda: self._run(statement)[1])

    def _read(self, work: Callable[[], T]) -> T:
        try:
            return restarting(work)
        except Broken:
            self._pool.drop_idle()
            return restarting(work)

    def _write(self, work: Callable[[], T]) -> T:
        try:
            return restarting(work)
        except Broken:
            self._pool.drop_idle()
            raise


def restarting(work: Callable[[], T]) -> T:
    """Do the work, again where the database asks for it, but not for ever.

    Pauses grow and differ between threads, so that those who met do not meet again. A thread's
    number is as good as chance for that.
    """
    pause, restart = Event(), Restart()
    spread = 0.5 + get_ident() // 4096 * 7919 % 1000 / 1000
    for attempt in range(_TRIES):
        if attempt:
            pause.wait(_PAUSE_SECONDS * 2**attempt * spread)
        try:
            return work()
        except Restart as asked:
            restart = asked
    raise StoreBusy(
        f"The database undid a write again and again ({restart}); try again"
    ) from restart


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Each row once, by id: who takes them in one order cannot wait for each other in a circle."""
    return [row for _, row in sorted({row.id: row for row in reversed(rows)}.items())]

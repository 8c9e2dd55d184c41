"""Retries of SQL engines on the network."""

from __future__ import annotations

from abc import abstractmethod
from threading import Event, get_ident
from typing import TYPE_CHECKING, Any, Final, TypeVar

from morag.backend.sql.backend import SqlBackend
from morag.backend.sql.errors import Broken, Restart
from morag.errors import StoreBusy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from morag.backend.base import LogRow, Row
    from morag.backend.sql.backend import Records
    from morag.backend.sql.pool import Pool
    from morag.backend.sql.statements import Statement

T = TypeVar("T")

_TRIES: Final = 6
_PAUSE_SECONDS: Final = 0.005


class RemoteSqlBackend(SqlBackend):
    """Reads are repeated if their connection breaks. Writes are not: they may have succeeded."""

    def __init__(self, pool: Pool[Any], keeps_log: bool) -> None:
        self._pool = pool
        self._keeps_log = keeps_log

    @abstractmethod
    def _run(self, statement: Statement) -> tuple[Records, int]:
        """The records that the statement found, and the number of records that it changed.

        Raises `Restart` if the database wants the statement repeated, and `Broken` if its outcome
        is unknown.
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
    """Do the work, and repeat it a few times while the database demands that.

    Pauses grow and differ between threads, so that threads that collided do not collide again. The
    id of the thread is random enough for that.
    """
    try:
        return work()
    except Restart as wanted:
        restart = wanted
    pause = Event()
    spread = 0.5 + get_ident() // 4096 * 7919 % 1000 / 1000
    for attempt in range(1, _TRIES):
        pause.wait(_PAUSE_SECONDS * 2**attempt * spread)
        try:
            return work()
        except Restart as wanted:
            restart = wanted
    raise StoreBusy(
        f"The database rolled a write back {_TRIES} times ({restart}); try again"
    ) from restart


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Each row once, by id: writers that lock rows in one order cannot deadlock."""
    return [row for _, row in sorted({row.id: row for row in reversed(rows)}.items())]

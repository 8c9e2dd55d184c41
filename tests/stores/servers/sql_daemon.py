"""Start, stop and databases of an SQL server for tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from signal import Signals

    from tests.stores.servers.daemon import Daemon


class SqlDaemon(ABC):
    """Creates numbered databases. An engine adds the execution of statements."""

    stop_signal: ClassVar[Signals]
    own_database: ClassVar[str]
    """A database that every server has."""
    unreachable: ClassVar[type[Exception]]
    """The driver's error while the server does not answer."""
    count_attempts: ClassVar[str]
    """Reads the sequence `attempts`, which a rollback does not reset."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.port = daemon.port
        self._numbers = count()

    @abstractmethod
    def execute(self, database: str, *statements: str) -> Sequence[tuple[Any, ...]]:
        """The records that the last of the statements returned."""

    def start(self) -> None:
        self._daemon.start(self._answers)

    def stop(self) -> None:
        self._daemon.stop(self.stop_signal)

    def crash(self) -> None:
        """Kill all processes of the server; it recovers at its next start."""
        self._daemon.kill()

    def forget(self) -> None:
        self.stop()
        self._daemon.forget()

    def new_database(self) -> str:
        name = f"catalog{next(self._numbers)}"
        self.execute(self.own_database, f"CREATE DATABASE {name}")
        return name

    def attempts(self, database: str) -> int:
        """The number of insertions since `refuse`."""
        ((attempts,),) = self.execute(database, self.count_attempts)
        return int(attempts)

    def _answers(self) -> bool:
        try:
            self.execute(self.own_database, "SELECT 1")
        except self.unreachable:
            return False
        return True

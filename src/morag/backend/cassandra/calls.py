"""Statements sent to Cassandra, with retries where they are safe."""

from __future__ import annotations

import time
from collections import deque
from random import uniform
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from cassandra import ConsistencyLevel
from cassandra.metadata import protect_name
from cassandra.policies import FallthroughRetryPolicy, RetryPolicy

from morag.backend.cassandra.errors import ERRORS
from morag.errors import StoreThrottled, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cassandra.cluster import ResultSet, Session
    from cassandra.query import BoundStatement, PreparedStatement

Record: TypeAlias = tuple[Any, ...]
Values: TypeAlias = "Sequence[object]"

ONCE: Final = "once"
AGAIN: Final = "again"
"""The execution profiles: `ONCE` never repeats a statement, `AGAIN` may, because it is harmless."""

AT_ONCE: Final = 32
"""The most conditional writes of one call in flight. Each costs the replicas four messages, and a
write that waits too long in a queue times out with an unknown outcome."""

_PAGE_ROWS: Final = 100  # An index segment may have 200 kB, and a page is held in memory.
_PAUSES_SECONDS: Final = (0.1, 0.6)
_RECONNECTED_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.05


class CassandraSession:
    """The reads and writes of the backend.

    All statements go to the replicas of one data centre: `LOCAL_QUORUM`, and `LOCAL_SERIAL` for
    conditional ones. A read is retried when a connection broke or the database was overloaded; a
    write is never sent twice, unless its caller declares that harmless (`AGAIN`).
    """

    def __init__(self, session: Session, keyspace: str, address: str) -> None:
        self._cluster, self._session, self._address = session.cluster, session, address
        self._keyspace = protect_name(keyspace)
        self._prepared: dict[str, PreparedStatement] = {}

    def read(self, text: str, values: Values, *, serial: bool = False) -> list[Record]:
        """All records. A `serial` read names one key, and settles unfinished writes of that key."""
        return list(self.pages(text, values, serial=serial))

    def pages(self, text: str, values: Values, *, serial: bool = False) -> Iterator[Record]:
        """The records, read page by page, so that nothing stays open between two pages."""
        state: bytes | None = None
        while True:
            page = self._read_page(text, values, serial, state)
            yield from page.current_rows
            state = page.paging_state
            if state is None:
                return

    def write(self, text: str, all_values: Iterable[Values], how: str = ONCE) -> list[Record]:
        """The answer to each write; that of a conditional one starts with whether it succeeded.

        If one fails, the others end before the error is raised: nothing stays in flight.
        """
        sent: deque[Any] = deque()
        answers: list[Record] = []
        failure: Exception | None = None

        def take() -> None:
            nonlocal failure
            try:
                answers.append(sent.popleft().result().one())
            except ERRORS.raised as error:
                failure = failure or error

        for values in all_values:
            if len(sent) == AT_ONCE:
                take()
            if failure is not None:
                break
            try:
                sent.append(
                    self._session.execute_async(self._bound(text, values), execution_profile=how)
                )
            except ERRORS.raised as error:
                failure = error
        while sent:
            take()
        if failure is not None:
            raise ERRORS.translate(failure, self._address) from failure
        return answers

    def close(self) -> None:
        self._cluster.shutdown()

    def _read_page(self, text: str, values: Values, serial: bool, state: bytes | None) -> ResultSet:
        for pause in (*_PAUSES_SECONDS, None):
            try:
                bound = self._bound(text, values)
                bound.fetch_size = _PAGE_ROWS
                if serial:
                    bound.consistency_level = ConsistencyLevel.LOCAL_SERIAL
                return self._session.execute(bound, execution_profile=AGAIN, paging_state=state)
            except ERRORS.raised as error:
                failure = ERRORS.translate(error, self._address)
                if pause is None or not isinstance(failure, StoreUnreachable | StoreThrottled):
                    raise failure from error
                time.sleep(uniform(pause / 2, pause))
                self._await_node()
        raise AssertionError("the last attempt returns or raises")

    def _await_node(self) -> None:
        """If all connections are lost, wait a moment for one to come back."""
        end = time.monotonic() + _RECONNECTED_SECONDS
        while time.monotonic() < end:
            if any(host.is_up for host in self._cluster.metadata.all_hosts()):
                return
            time.sleep(_LOOK_SECONDS)

    def _bound(self, text: str, values: Values) -> BoundStatement:
        prepared = self._prepared.get(text)
        if prepared is None:
            prepared = self._prepared[text] = self._session.prepare(
                text.replace("$", self._keyspace)
            )
        return prepared.bind(values)


class AgainPolicy(RetryPolicy):  # type: ignore[misc]  # The driver has no types.
    """The driver's own retry of reads: one more attempt, on another node if possible."""

    def on_request_error(
        self, query: object, consistency: int, error: Exception, retry_num: int
    ) -> tuple[int, int | None]:
        return (self.RETHROW if retry_num else self.RETRY_NEXT_HOST), None


class OncePolicy(FallthroughRetryPolicy):  # type: ignore[misc]
    """For conditional writes. Sent a second time, such a write would fail because of the first.

    The driver's own default sends everything again when a connection breaks.
    """

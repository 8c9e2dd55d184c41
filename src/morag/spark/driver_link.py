"""A connection from executors on this machine to the driver: rows of its store, and progress.

Only one process can write to an embedded store such as RocksDB. That process is the driver, which
stores the rows that executors have computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Client,
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

import msgspec
from msgspec import Struct

from morag.backend.base import WHOLE
from morag.format.records import ObjId, Row
from morag.spark.errors import CannotRun
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from pyspark.sql import SparkSession

    from morag.backend.base import Backend, Ref, RefSwap, Slice
    from morag.backend.urls import StoreUrl

_KEY_BYTES: Final = 32
_BACKLOG: Final = 128
"""All tasks of a job may connect at once."""


class _Insert(Struct, frozen=True, tag=True):
    repo: str
    rows: Sequence[Row]


class _Read(Struct, frozen=True, tag=True):
    repo: str
    ids: Sequence[ObjId]


class _Count(Struct, frozen=True, tag=True):
    units: int


class _Reply(Struct, frozen=True):
    rows: Sequence[Row] = ()
    ids: Sequence[ObjId] = ()
    problem: str = ""


_Request: TypeAlias = _Insert | _Read | _Count


def are_executors_local(spark: SparkSession) -> bool:
    """Whether executors are on this machine, and can reach the driver's listener."""
    return (spark.sparkContext.master or "").startswith("local")


def check_writable(spark: SparkSession, target: StoreUrl) -> None:
    """Refuse a store that only the driver can write to, if executors are on other machines."""
    if target.traits.private and not are_executors_local(spark):
        raise CannotRun(
            f"Only one process can write to '{target}', so the executors must be on this machine: "
            "choose the master local[*], or a database that all executors reach"
        )


class DriverAddress(Struct, frozen=True):
    """Where the driver listens. Nobody can connect without the key."""

    host: str
    port: int
    key: bytes

    def connect(self) -> DriverLink:
        return DriverLink(Client((self.host, self.port), authkey=self.key))

    def __repr__(self) -> str:
        return "DriverAddress()"  # Plans and logs may show this, so it has no key.


class DriverListener:
    """The driver's side, open for the duration of a `with` block. Each executor has a thread."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = Lock()
        self._key = World().random_bytes(_KEY_BYTES)
        # Without the key: `accept` would wait for one client's answer, and keep all others out.
        self._listener = Listener(("127.0.0.1", 0), backlog=_BACKLOG)
        self._is_open = True
        self.units = 0
        """The sum of what executors have reported as done."""

    @property
    def address(self) -> DriverAddress:
        host, port = self._listener.address
        return DriverAddress(str(host), int(port), self._key)

    def __enter__(self) -> DriverListener:
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_open = False
        with suppress(OSError):
            Client(
                self._listener.address
            ).close()  # Ends a waiting `accept`, which `close` does not.
        self._listener.close()

    def _accept(self) -> None:
        while self._is_open:
            try:
                connection = self._listener.accept()
            except OSError:  # Closed, or the client has gone.
                continue
            Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        decode, encode = msgspec.msgpack.Decoder(_Request).decode, msgspec.msgpack.Encoder().encode
        # A client without the key is refused; a task that was killed has closed its connection.
        with connection, suppress(AuthenticationError, EOFError, OSError):
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            while self._is_open:
                connection.send_bytes(encode(self._reply(decode(connection.recv_bytes()))))

    def _reply(self, request: _Request) -> _Reply:
        try:
            match request:
                case _Insert():
                    return _Reply(ids=[*self._backend.insert_rows(request.repo, request.rows)])
                case _Read():
                    found = self._backend.read_rows(request.repo, request.ids)
                    return _Reply(rows=[*found.values()])
                case _Count():
                    with self._lock:
                        self.units += request.units
                    return _Reply()
        except Exception as error:  # noqa: BLE001 - The executor raises it, and its task fails.
            return _Reply(problem=str(error) or repr(error))


class DriverLink:
    """An executor's side: a backend for the rows of the driver's store, and reports of progress."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(_Reply).decode

    def count(self, units: int) -> None:
        self._ask(_Count(units))

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        return {row.id: row for row in self._ask(_Read(repo, ids)).rows}

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        return frozenset(self._ask(_Insert(repo, rows)).ids)

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        _refuse()

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        _refuse()

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        _refuse()

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        _refuse()

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        _refuse()

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        _refuse()

    def erase(self, repo: str) -> None:
        _refuse()

    def close(self) -> None:
        self._connection.close()

    def _ask(self, request: _Request) -> _Reply:
        try:
            self._connection.send_bytes(self._encode(request))
            reply = self._decode(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise CannotRun("The driver of this job has ended") from error
        if reply.problem:
            raise CannotRun(reply.problem)
        return reply


def _refuse() -> NoReturn:
    raise AssertionError("executors only read and insert rows")

"""Closed-loop load from one thread: raw sockets, epoll, and no more parsing than it takes.

The servers under test share the machine with what drives them. Every microsecond spent here is
missing there, so an HTTP library is out of the question; `cpu_seconds` says what is spent.
"""

from __future__ import annotations

import re
import select
import socket
import sys
from math import inf, nan
from time import perf_counter, process_time, sleep
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Sequence

Address = tuple[str, int]

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_SILENCE_SECONDS: Final = 30
_GATHER_SECONDS: Final = 0.0001
"""How long answers to several clients are left to gather. To wake a sleeping generator for each of
them would cost a server up to 40 µs per answer on a virtual machine: as much as all its own work,
and something that clients elsewhere would not cost it."""
_READ_BYTES: Final = 1 << 16


class Client(Protocol):
    """Somebody who asks, waits for the answer, and asks again."""

    def request(self) -> bytes: ...

    def answered(self, answer: bytes) -> None:
        """Learn from an answer with status 200: its head and its body in one piece."""
        ...


class Outcome(Struct):
    """What one or several slices of load gave."""

    micros: list[float] = field(default_factory=list)
    """How long each request took that was answered as it should be."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Spent by the generator."""
    server_cpu_seconds: float = 0.0
    failures: list[bytes] = field(default_factory=list)
    """All answers but those with status 200; what a lost connection had brought so far."""

    def __iadd__(self, other: Outcome) -> Outcome:
        self.micros += other.micros
        self.seconds += other.seconds
        self.cpu_seconds += other.cpu_seconds
        self.server_cpu_seconds += other.server_cpu_seconds
        self.failures += other.failures
        return self

    @property
    def rate(self) -> float:
        return len(self.micros) / self.seconds

    def each_micros(self, seconds: float) -> float:
        """The share of one request in the time of all."""
        return seconds * 1e6 / max(1, len(self.micros))

    def percentile(self, percent: float) -> float:
        ordered = sorted(self.micros) or [nan]
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class _Connection(Struct):
    socket: socket.socket
    client: Client
    asked: float = 0.0
    received: bytes = b""


def drive(
    address: Address,
    clients: Sequence[Client],
    *,
    seconds: float = inf,
    requests: int = sys.maxsize,
) -> Outcome:
    """Let each client ask over a connection of its own, until time or requests are used up.

    Connecting is not part of the time, waiting for the last answers is.
    """
    outcome = Outcome()
    poll = select.epoll()
    connections: dict[int, _Connection] = {}
    for client in clients:
        connected = socket.create_connection(address)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setblocking(False)
        poll.register(connected.fileno(), select.EPOLLIN)
        connections[connected.fileno()] = _Connection(connected, client)
    try:
        _drive(poll, connections, outcome, seconds, requests)
    finally:
        poll.close()
        for connection in connections.values():
            connection.socket.close()
    return outcome


def _drive(
    poll: select.epoll,
    connections: dict[int, _Connection],
    outcome: Outcome,
    seconds: float,
    requests: int,
) -> None:
    micros = outcome.micros
    waiting = asked = 0
    cpu, started = process_time(), perf_counter()
    end = started + seconds
    for connection in connections.values():
        if asked < requests:
            connection.asked = perf_counter()
            connection.socket.send(connection.client.request())
            asked += 1
            waiting += 1
    while waiting:
        if len(connections) > 1:
            sleep(_GATHER_SECONDS)
        ready = poll.poll(_SILENCE_SECONDS)
        if not ready:
            raise TimeoutError(f"{waiting} requests got no answer within {_SILENCE_SECONDS} s")
        for number, _ in ready:
            connection = connections[number]
            data = _receive(connection)
            if data is None:  # The server hung up, and this client goes home.
                outcome.failures.append(connection.received)
                waiting -= 1
                continue
            good = _is_good(data)
            if good is None:
                connection.received = data
                continue
            connection.received = b""
            now = perf_counter()
            if good:
                micros.append((now - connection.asked) * 1e6)
                connection.client.answered(data)
            else:
                outcome.failures.append(data)
            if now < end and asked < requests:
                connection.asked = perf_counter()
                connection.socket.send(connection.client.request())
                asked += 1
            else:
                waiting -= 1
                poll.unregister(number)
    outcome.seconds = perf_counter() - started
    outcome.cpu_seconds = process_time() - cpu


def _receive(connection: _Connection) -> bytes | None:
    """Everything of the answer so far, or None if the connection was lost."""
    try:
        data = connection.socket.recv(_READ_BYTES)
    except ConnectionError:
        data = b""
    if not data:
        connection.socket.close()
        return None
    return connection.received + data if connection.received else data


def _is_good(data: bytes) -> bool | None:
    """Whether this is one answer with status 200; None as long as some of it is missing."""
    head = data.find(b"\r\n\r\n")
    if head < 0:
        return None
    length = _LENGTH.search(data, 0, head + 2)
    if length is None:
        return False
    missing = head + 4 + int(length[1]) - len(data)
    if missing > 0:
        return None
    return missing == 0 and data.startswith(b"HTTP/1.1 200 ")

"""Generates closed-loop load from one thread, with raw sockets, epoll and minimal parsing.

The generator shares the machine with the server under test and takes CPU time from it. So it uses
no HTTP library, and reports its own CPU time in `cpu_seconds`.
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
"""How long to collect responses to several clients. Waking a sleeping generator for each response
would cost a server up to 40 µs on a virtual machine: as much as all its own work, and a cost that
clients on other machines would not cause."""
_READ_BYTES: Final = 1 << 16


class Client(Protocol):
    """Sends a request, waits for the response, and sends the next one."""

    def request(self) -> bytes: ...

    def answered(self, response: bytes) -> None:
        """Process a response with status 200: head and body in one piece."""
        ...


class Outcome(Struct):
    """The result of one or several slices of load."""

    micros: list[float] = field(default_factory=list)
    """The duration of each successful request."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """CPU time of the generator."""
    server_cpu_seconds: float = 0.0
    failures: list[bytes] = field(default_factory=list)
    """Responses with another status than 200, and the partial responses of lost connections."""

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
        """`seconds`, divided by the number of requests."""
        return seconds * 1e6 / max(1, len(self.micros))

    def percentile(self, percent: float) -> float:
        ordered = sorted(self.micros) or [nan]
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class _Connection(Struct):
    socket: socket.socket
    client: Client
    sent: float = 0.0
    received: bytes = b""


def drive(
    address: Address,
    clients: Sequence[Client],
    *,
    seconds: float = inf,
    requests: int = sys.maxsize,
) -> Outcome:
    """Send the requests of each client over its own connection, until time or requests run out.

    The measured time includes the wait for the last responses, but not the connects.
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
    waiting = sent = 0
    cpu, started = process_time(), perf_counter()
    end = started + seconds
    for connection in connections.values():
        if sent < requests:
            connection.sent = perf_counter()
            connection.socket.send(connection.client.request())
            sent += 1
            waiting += 1
    while waiting:
        if len(connections) > 1:
            sleep(_GATHER_SECONDS)
        ready = poll.poll(_SILENCE_SECONDS)
        if not ready:
            raise TimeoutError(f"{waiting} requests got no response within {_SILENCE_SECONDS} s")
        for number, _ in ready:
            connection = connections[number]
            data = _receive(connection)
            if data is None:  # The server closed the connection: this client stops.
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
                micros.append((now - connection.sent) * 1e6)
                connection.client.answered(data)
            else:
                outcome.failures.append(data)
            if now < end and sent < requests:
                connection.sent = perf_counter()
                connection.socket.send(connection.client.request())
                sent += 1
            else:
                waiting -= 1
                poll.unregister(number)
    outcome.seconds = perf_counter() - started
    outcome.cpu_seconds = process_time() - cpu


def _receive(connection: _Connection) -> bytes | None:
    """The response as far as it has arrived, or None if the connection was lost."""
    try:
        data = connection.socket.recv(_READ_BYTES)
    except ConnectionError:
        data = b""
    if not data:
        connection.socket.close()
        return None
    return connection.received + data if connection.received else data


def _is_good(data: bytes) -> bool | None:
    """Whether this is one response with status 200; None if it is still incomplete."""
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

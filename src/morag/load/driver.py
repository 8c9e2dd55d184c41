"""Drives simulated clients in a closed loop, from one thread, with raw sockets and poll.

The driver often shares the machine with the server under test and takes CPU time from it. So it
uses no HTTP library, parses as little as it can, and reports its own CPU time.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Generator
from contextlib import suppress
from math import inf, nan
from time import perf_counter, process_time, sleep
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import DecodeError, Struct, field, json

from morag.client.errors import ServerUnreachable
from morag.load.http_framing import OK, Incoming, body_of

if TYPE_CHECKING:
    from collections.abc import Sequence

Address: TypeAlias = tuple[str, int]

Step: TypeAlias = tuple[bytes, int]
"""A request, and how many units of work its response completes: 0 within a cycle of requests."""

Steps: TypeAlias = Generator[Step, bytes, None]
"""The behaviour of a client: yields steps and gets each response, or b"" if the request failed."""

_Check: TypeAlias = tuple[Callable[[Any], int], int, bytes]
"""The function that counts the units of a response, their number, and the response."""

_SILENCE_SECONDS: Final = 60
_GATHER_SECONDS: Final = 0.0001
"""How long to collect responses to several clients. Waking a sleeping driver for each response
would cost a server up to 40 µs on a virtual machine: as much as all its own work, and a cost that
clients on other machines would not cause."""
_READ_BYTES: Final = 1 << 16
_SHOWN_FAILURES: Final = 3
_SHOWN_BYTES: Final = 1_000


class Client:
    """A simulated client, which continues in the next slice where it stopped in the last one."""

    __slots__ = ("_advance", "count", "request", "units")

    def __init__(self, steps: Steps, count: Callable[[Any], int] | None = None) -> None:
        self._advance = steps.send
        self.request, self.units = next(steps)
        self.count = count
        """Counts the units in a decoded response, to check the first one of each slice."""

    def answered(self, response: bytes) -> bool:
        """Move to the next request. False if there is none."""
        try:
            self.request, self.units = self._advance(response)
        except StopIteration:
            return False
        return True


class Outcome(Struct):
    """The result of one or several slices of load."""

    units: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """CPU time of the driver."""
    server_cpu_seconds: float = 0.0
    """CPU time of the server, if somebody measures it."""
    latencies_seconds: list[float] = field(default_factory=list)
    """The duration of each successful request or cycle of requests."""
    failures: int = 0
    shown_failures: list[str] = field(default_factory=list)
    """The first responses with another status than 200, and reports of lost connections."""

    @property
    def rate(self) -> float:
        return self.units / self.seconds if self.seconds else nan

    def percentile_seconds(self, percent: float) -> float:
        ordered = sorted(self.latencies_seconds) or [nan]
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

    def failed(self, problem: bytes) -> None:
        self.failures += 1
        if len(self.shown_failures) < _SHOWN_FAILURES:
            self.shown_failures.append(problem[:_SHOWN_BYTES].decode(errors="replace"))

    def __iadd__(self, other: Outcome) -> Outcome:
        self.units += other.units
        self.seconds += other.seconds
        self.cpu_seconds += other.cpu_seconds
        self.server_cpu_seconds += other.server_cpu_seconds
        self.latencies_seconds += other.latencies_seconds
        self.failures += other.failures
        self.shown_failures = (self.shown_failures + other.shown_failures)[:_SHOWN_FAILURES]
        return self


def drive(address: Address, clients: Sequence[Client], seconds: float = inf) -> Outcome:
    """Send the requests of each client over its own connection, until time or requests run out.

    A client that is within a cycle of requests when the time is over finishes it. The measured time
    includes the wait for the last responses, but not the connects.
    """
    outcome = Outcome()
    connections: dict[int, _Connection] = {}
    try:
        for client in clients:
            connection = _Connection(_connected(address), client)
            connections[connection.socket.fileno()] = connection
        unchecked = _drive(connections, outcome, seconds)
    finally:
        for connection in connections.values():
            connection.socket.close()
    for count, units, response in unchecked:
        try:
            found = count(json.decode(body_of(response)))
        except DecodeError:
            outcome.failed(response)
        else:
            if found != units:
                outcome.failed(b"a response has %d units, not %d" % (found, units))
    return outcome


class _Connection:
    __slots__ = ("began", "client", "incoming", "receive", "socket")

    def __init__(self, connected: socket.socket, client: Client) -> None:
        self.socket = connected
        self.receive = connected.recv
        self.client = client
        self.incoming = Incoming()
        self.began = 0.0

    def send(self) -> None:
        """Send the request of the client. If the connection is lost, the next read reports it."""
        request = self.client.request
        try:
            sent = self.socket.send(request)
            if sent < len(request):
                self.socket.settimeout(_SILENCE_SECONDS)
                self.socket.sendall(request[sent:])
                self.socket.setblocking(False)
        except OSError:
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)


def _drive(connections: dict[int, _Connection], outcome: Outcome, seconds: float) -> list[_Check]:
    """Fill in the outcome, and return the first responses, to be checked outside the loop."""
    latencies = outcome.latencies_seconds
    unchecked: list[_Check] = []
    poller = select.poll()
    units = 0
    cpu, started = process_time(), perf_counter()
    end = started + seconds
    for number, connection in connections.items():
        poller.register(number, select.POLLIN)
        connection.began = perf_counter()
        connection.send()
    active, several = len(connections), len(connections) > 1
    while active:
        if several:
            sleep(_GATHER_SECONDS)
        ready = poller.poll(_SILENCE_SECONDS * 1000)
        if not ready:
            raise ServerUnreachable(f"The server sent nothing for {_SILENCE_SECONDS} s")
        for number, _ in ready:
            connection = connections[number]
            try:
                data = connection.receive(_READ_BYTES)
            except OSError:
                data = b""
            if not data:
                outcome.failed(b"the server closed a connection")
                poller.unregister(number)
                active -= 1
                continue
            response = connection.incoming.add(data)
            if response is None:
                continue
            now = perf_counter()
            client = connection.client
            done = client.units
            if response.startswith(OK):
                if done:
                    units += done
                    latencies.append(now - connection.began)
                    if client.count is not None and len(unchecked) < len(connections):
                        unchecked.append((client.count, done, response))
                cycle_ended = done > 0
            else:
                outcome.failed(response)
                response, cycle_ended = b"", True
            if client.answered(response) and (now < end or not cycle_ended):
                if cycle_ended:
                    connection.began = perf_counter()
                connection.send()
            else:
                poller.unregister(number)
                active -= 1
    outcome.units = units
    outcome.seconds = perf_counter() - started
    outcome.cpu_seconds = process_time() - cpu
    return unchecked


def _connected(address: Address) -> socket.socket:
    try:
        connected = socket.create_connection(address, timeout=_SILENCE_SECONDS)
    except OSError as error:
        host, port = address
        raise ServerUnreachable(f"Cannot connect to {host}:{port}: {error}") from None
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setblocking(False)
    return connected

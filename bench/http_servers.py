"""Measures the cost of HTTP servers without an application, to choose one.

    .venv/bin/python -m bench.http_servers [Morag] ["uvicorn, ASGI"] ["Granian, RSGI"] ...

Without names all candidates run, half a minute each, on the loopback interface. Each candidate
sends the same response. One process with raw sockets sends requests over 8 and 64 persistent
connections. The candidates take turns, and the best of several slices counts, because other load on
the machine can only slow a candidate down. Granian must be installed separately.
docs/decisions/0006-http-server.md has the figures.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, process_time, sleep
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from msgspec import Struct

from morag.api.http import Response
from morag.config import ServerSettings
from morag.server.edge import Edge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from morag.api.http import Request

BODY: Final = b'{"reference":{"type":"BRANCH","name":"main","hash":"%b"}}' % (b"2e1cfa82" * 8)
TYPE: Final = (b"content-type", b"application/json;charset=UTF-8")
LENGTH: Final = (b"content-length", str(len(BODY)).encode())
HEAD: Final = b"Host: 127.0.0.1\r\nAccept: application/json\r\nUser-Agent: x\r\n"
REQUESTS: Final = {
    "GET": b"GET /api/v2/trees/main HTTP/1.1\r\n" + HEAD + b"\r\n",
    "POST": b"POST /api/v2/trees HTTP/1.1\r\n" + HEAD + b"Content-Length: 500\r\n\r\n" + 500 * b"x",
}
SLICES: Final = 8
SLICE_SECONDS: Final = 1.0
START_SECONDS: Final = 30
HERE: Final = "bench.http_servers"
GRANIAN: Final = (
    "granian --workers 1 --loop uvloop --no-ws --log-level error --port PORT --interface"
)
COMMANDS: Final = {
    "uvicorn, ASGI": f"{HERE} serve-asgi PORT",
    "Granian, RSGI": f"{GRANIAN} rsgi {HERE}:rsgi",
    "Granian, ASGI": f"{GRANIAN} asgi {HERE}:asgi",
    "Morag": f"{HERE} serve-morag PORT",
}


async def asgi(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    if scope["method"] == "POST":
        while (await receive())["more_body"]:
            pass
    await send({"type": "http.response.start", "status": 200, "headers": [TYPE, LENGTH]})
    await send({"type": "http.response.body", "body": BODY})


async def rsgi(scope: Any, protocol: Any) -> None:
    list(scope.headers.items())  # The API reads them, too.
    if scope.method == "POST":
        await protocol()
    headers = [(name.decode(), value.decode()) for name, value in (TYPE, LENGTH)]
    protocol.response_bytes(200, headers, BODY)


class Constant:
    """An API that always sends the same response."""

    def answer(self, request: Request) -> Response:
        return Response(200, BODY, (TYPE,))

    def failure(self, request: Request, error: Exception) -> Response:
        raise error


async def lifespan(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    await receive()
    edge = Edge(Constant(), ServerSettings(), check_store=lambda: None)
    scope["state"]["edge"] = edge
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


class Candidate:
    """A server that runs for the duration of the `with` block."""

    def __init__(self, name: str) -> None:
        self.name = name
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = free.getsockname()
        command = COMMANDS[name].replace("PORT", str(self.address[1])).split()
        self._process = subprocess.Popen([sys.executable, "-m", *command])

    def __enter__(self) -> Candidate:
        end = monotonic() + START_SECONDS
        while monotonic() < end:
            try:
                socket.create_connection(self.address).close()
            except ConnectionError:
                sleep(0.1)
            else:
                return self
        raise TimeoutError(f"{self.name} did not start")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def cpu_seconds(self) -> float:
        ticks = 0
        for pid in self._pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def resident_megabytes(self) -> float:
        found = (Path(f"/proc/{pid}/status").read_text() for pid in self._pids())
        return sum(int(text.split("VmRSS:")[1].split()[0]) for text in found) / 1024

    def _pids(self) -> list[str]:
        pid = str(self._process.pid)
        return [pid, *Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Slice(Struct, frozen=True):
    per_second: float
    server_micros: float
    client_micros: float


def measure_slice(candidate: Candidate, request: bytes, clients: int) -> Slice:
    """Send requests over all connections for a while, the next one after each response."""
    with ExitStack() as stack:
        poll = stack.enter_context(select.epoll())
        sockets = {}
        for _ in range(clients):
            client = stack.enter_context(socket.create_connection(candidate.address))
            poll.register(client.fileno(), select.EPOLLIN)
            sockets[client.fileno()] = client
        responses = 0
        cpu, own, started = candidate.cpu_seconds(), process_time(), monotonic()
        for client in sockets.values():
            client.send(request)
        while monotonic() - started < SLICE_SECONDS:
            for number, _ in poll.poll():
                client = sockets[number]
                if client.recv(65536).endswith(BODY):  # The response may arrive in two pieces.
                    client.send(request)
                    responses += 1
        seconds = monotonic() - started
        micros = 1e6 / responses
        return Slice(
            responses / seconds,
            (candidate.cpu_seconds() - cpu) * micros,
            (process_time() - own) * micros,
        )


def measure(names: list[str]) -> None:
    with ExitStack() as stack:
        candidates = [stack.enter_context(Candidate(name)) for name in names]
        sleep(2)  # Granian's worker is another process and starts later.
        for method, request in REQUESTS.items():
            for clients in (8, 64):
                found: dict[str, list[Slice]] = {name: [] for name in names}
                for _ in range(SLICES):
                    for candidate in candidates:
                        found[candidate.name].append(measure_slice(candidate, request, clients))
                for candidate in candidates:
                    slices = found[candidate.name]
                    sys.stdout.write(
                        f"| {method} | {clients} | {candidate.name}"
                        f" | {max(s.per_second for s in slices):,.0f}"
                        f" | {min(s.server_micros for s in slices):.0f}"
                        f" | {min(s.server_micros + s.client_micros for s in slices):.0f}"
                        f" | {candidate.resident_megabytes():.0f} |\n"
                    )
                    sys.stdout.flush()


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["serve-asgi"]:
        uvicorn.run(
            asgi,
            port=int(arguments[1]),
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
    elif arguments[:1] == ["serve-morag"]:
        uvicorn.run(
            lifespan,
            port=int(arguments[1]),
            http="morag.server.connection:Connection",
            ws="none",
            lifespan="on",
            log_level="error",
        )
    else:
        measure(arguments or list(COMMANDS))


if __name__ == "__main__":
    main(sys.argv[1:])

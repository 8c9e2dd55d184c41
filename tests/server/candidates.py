"""What an HTTP server costs by itself: `python -m tests.server.candidates [NAME ...]`.

Each candidate answers the same bytes; one process with raw sockets asks, over 8 and 64 connections
that are kept. Of several slices the best counts: what else runs only makes them worse. Granian has
to be installed for it. docs/decisions/0006-http-server.md has figures.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from bench.original.generator import drive
from morag.api.http import Response
from morag.config import ServerSettings
from morag.server.edge import Edge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from morag.api.http import Request

BODY: Final = b'{"reference":{"type":"BRANCH","name":"main","hash":"%b"}}' % (b"2e1cfa82" * 8)
TYPE: Final = (b"content-type", b"application/json;charset=UTF-8")
LENGTH: Final = (b"content-length", str(len(BODY)).encode())
SLICES: Final = 8
SLICE_SECONDS: Final = 1.0
HERE: Final = "tests.server.candidates"
GRANIAN: Final = (
    "granian --workers 1 --loop uvloop --no-ws --log-level error --port PORT --interface"
)
COMMANDS: Final = {
    "uvicorn-asgi": f"{HERE} serve-asgi PORT",
    "granian-rsgi": f"{GRANIAN} rsgi {HERE}:rsgi",
    "granian-asgi": f"{GRANIAN} asgi {HERE}:asgi",
    "morag": f"{HERE} serve-morag PORT",
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
    list(scope.headers.items())  # The API looks at them.
    if scope.method == "POST":
        await protocol()
    headers = [(name.decode(), value.decode()) for name, value in (TYPE, LENGTH)]
    protocol.response_bytes(200, headers, BODY)


class Constant:
    """An API with one answer."""

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
    edge = Edge(Constant(), ServerSettings(), in_place=True, check_store=lambda: None)
    scope["state"]["edge"] = edge
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


class Asker:
    def __init__(self, request: bytes) -> None:
        self._request = request

    def request(self) -> bytes:
        return self._request

    def answered(self, answer: bytes) -> None:
        pass


def measure(name: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    command = COMMANDS[name].replace("PORT", str(address[1])).split()
    server = subprocess.Popen([sys.executable, "-m", *command], stderr=subprocess.DEVNULL)
    try:
        _await(address)
        sleep(1)  # Granian's worker is another process, and comes later.
        processes = [server.pid, *_children(server.pid)]
        head = "Host: 127.0.0.1\r\nAccept: application/json\r\nUser-Agent: x\r\n"
        get = f"GET /api/v2/trees/main HTTP/1.1\r\n{head}\r\n".encode()
        post = (
            f"POST /api/v2/trees HTTP/1.1\r\n{head}Content-Length: 500\r\n\r\n{'x' * 500}".encode()
        )
        for what, request in (("GET", get), ("POST", post)):
            for clients in (8, 64):
                drive(address, [Asker(request)] * clients, seconds=0.5)
                rates, costs, own = [], [], []
                for _ in range(SLICES):
                    before = sum(map(_cpu_seconds, processes))
                    outcome = drive(address, [Asker(request)] * clients, seconds=SLICE_SECONDS)
                    assert not outcome.failures, outcome.failures[0]
                    spent = sum(map(_cpu_seconds, processes)) - before
                    rates.append(outcome.rate)
                    costs.append(spent / len(outcome.micros) * 1e6)
                    own.append(outcome.cpu_micros)
                resident = sum(map(_resident_megabytes, processes))
                sys.stdout.write(
                    f"{name:13} {what:4} {clients:2} clients {max(rates):7,.0f}/s"
                    f"  server {min(costs):5.1f} µs  client {min(own):5.1f} µs"
                    f"  {resident:3.0f} MB\n"
                )
                sys.stdout.flush()
    finally:
        server.terminate()
        server.wait()


def _await(address: tuple[str, int]) -> None:
    end = monotonic() + 30
    while monotonic() < end:
        try:
            socket.create_connection(address).close()
            return
        except ConnectionError:
            sleep(0.1)
    raise TimeoutError("it did not start")


def _children(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


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
        for name in arguments or COMMANDS:
            measure(name)


if __name__ == "__main__":
    main(sys.argv[1:])

"""DynamoDB Local, and an interceptor that answers in its place at a test's request."""

from __future__ import annotations

import http.client
import json
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final

from tests.stores.databases import Database, EmptyStore, new_name
from tests.stores.servers.jvm import jars, machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.stores.servers.jvm import Machine

ARTIFACT: Final = "software.amazon.dynamodb:DynamoDBLocal:3.1.0"
CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests"}
"""For the environment. DynamoDB Local accepts any; `-sharedDb` lets all see the same tables."""

_IN_MEMORY: Final = "-inMemory"


class DynamoDBLocal:
    """Amazon's emulator, bound to loopback: its default is all addresses."""

    def __init__(self, java: Machine, directory: Path | None, port: int) -> None:
        kept = [_IN_MEMORY] if directory is None else ["-dbPath", str(directory)]
        arguments = ["-sharedDb", "-disableTelemetry", *kept]
        runner = java.jvm.software.amazon.dynamodb.services.local.main.ServerRunner
        self._server = runner.createServerFromCommandLineArgs(java.strings(arguments))
        inside = self._server.getClass().getDeclaredField("server")
        inside.setAccessible(True)
        self._connector = inside.get(self._server).getConnectors()[0]
        self._connector.setHost("127.0.0.1")
        self._connector.setPort(port)
        self._server.start()
        self.port: int = self._connector.getLocalPort()
        self._connector.setPort(self.port)
        self.pid = java.pid

    def url(self, prefix: str) -> str:
        """The URL of a store whose tables have the prefix; opening it creates them."""
        return url_of(self.port, prefix)

    def stop(self) -> None:
        """Stop listening, and keep all data."""
        self._connector.stop()

    def start(self) -> None:
        self._connector.start()


def url_of(port: int, prefix: str, *options: str) -> str:
    endpoint = f"endpoint=http://127.0.0.1:{port}"
    return "&".join([f"dynamodb://eu-west-1?{endpoint}", f"table_prefix={prefix}", *options])


@contextmanager
def dynamodb_local(directory: Path | None = None, port: int = 0) -> Iterator[DynamoDBLocal]:
    """With a directory, the data survives the server."""
    with machine(jars(ARTIFACT)) as java:
        yield DynamoDBLocal(java, directory, port)


class Interceptor:
    """Forwards requests to a server, or answers them as `next_time` says.

    `CUT_BEFORE` and `CUT_AFTER` cut the connection before or after the server has done its work;
    `LATE` cuts it when `wake` is called.
    """

    CUT_BEFORE: Final = "cut before"
    CUT_AFTER: Final = "cut after"
    LATE: Final = "late"

    def __init__(self, port: int) -> None:
        self._server = port
        self._lock, self._awake = Lock(), Event()
        self._instead: dict[str, list[tuple[int, Mapping[str, Any]] | str]] = {}
        self.seen: list[tuple[str, Mapping[str, Any]]] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = False
        self.port: int = self._http.server_address[1]
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def next_time(self, operation: str, *answers: tuple[int, Mapping[str, Any]] | str) -> None:
        """Answer the next requests of the operation with these statuses and bodies, one by one."""
        with self._lock:
            self._instead[operation] = list(answers)

    def wake(self) -> None:
        self._awake.set()

    def count(self, operation: str) -> int:
        return sum(1 for name, _ in self.seen if name == operation)

    def close(self) -> None:
        self.wake()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        interceptor = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                interceptor.serve(self)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        operation = request.headers["X-Amz-Target"].partition(".")[2]
        with self._lock:
            self.seen.append((operation, json.loads(body)))
            instead = self._instead.get(operation, [])
            reaction = instead.pop(0) if instead else None
        if reaction == self.CUT_BEFORE:
            return
        if reaction == self.LATE:
            self._awake.wait()
            return
        if isinstance(reaction, tuple):
            status, answer = reaction[0], json.dumps(reaction[1]).encode()
        else:
            status, answer = self._forward(request, body)
        if reaction == self.CUT_AFTER:
            return
        request.send_response(status)
        request.send_header("Content-Type", "application/x-amz-json-1.0")
        request.send_header("Content-Length", str(len(answer)))
        request.end_headers()
        request.wfile.write(answer)

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self._server)) as server:
            server.request("POST", "/", body, dict(request.headers))
            answer = server.getresponse()
            return answer.status, answer.read()


@contextmanager
def intercepting(server: DynamoDBLocal) -> Iterator[Interceptor]:
    with closing(Interceptor(server.port)) as opened:
        yield opened


def refusal(kind: str, status: int = 400) -> tuple[int, Mapping[str, Any]]:
    """An error response of DynamoDB."""
    return status, {"__type": f"com.amazonaws.dynamodb.v20120810#{kind}", "message": "injected"}


@contextmanager
def _in_memory(_: bool) -> Iterator[DynamoDBLocal]:
    with dynamodb_local() as server:
        yield server


def new_store(server: DynamoDBLocal) -> EmptyStore:
    prefix, aws = new_name(), "quarkus.dynamodb.aws"
    key = f"{aws}.credentials.static-provider"
    return EmptyStore.at(
        server.port,
        server.url(prefix),
        {
            "nessie.version.store.type": "DYNAMODB2",
            "nessie.version.store.persist.dynamodb.table-prefix": prefix,
            "quarkus.dynamodb.endpoint-override": f"http://127.0.0.1:{server.port}",
            f"{aws}.region": "eu-west-1",
            f"{aws}.credentials.type": "STATIC",
            f"{key}.access-key-id": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            f"{key}.secret-access-key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        },
        CREDENTIALS,
    )


DATABASE: Final = Database("DynamoDB", _in_memory, new_store, histories=2, runs_nessie=True)

"""The emulator of Bigtable, and an interceptor that fails calls at a test's request."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Event, Lock
from typing import TYPE_CHECKING, Final

import grpc
from msgspec import Struct

from tests.download_cache import fetched
from tests.stores.databases import Database, EmptyStore, new_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MODULE: Final = "cloud.google.com/go/bigtable/cmd/emulator@v1.58.0"
_UNARY: Final = frozenset({"CheckAndMutateRow", "GetTable", "CreateTable"})
"""The calls with one answer; all others stream their answers."""


class Bigtable:
    """Keeps everything in memory, so that it is empty after a kill and a start."""

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    def url(self, project: str, instance: str = "tests") -> str:
        """The emulator accepts any project and instance."""
        return f"bigtable://{project}/{instance}?emulator=127.0.0.1:{self.port}"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [str(_program()), "-host", "127.0.0.1", "-port", str(self.port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        address = self._process.stdout.readline()  # Written as soon as the emulator listens.
        self.port = int(address.strip().rpartition(":")[2])

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Bigtable:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@cache
def _program() -> Path:
    """The emulator, built on first use. Needs go on the PATH."""

    def build(directory: Path) -> Path:
        environment = {**os.environ, "GOBIN": str(directory)}
        subprocess.run(["go", "install", MODULE], check=True, cwd=directory, env=environment)
        return directory / "emulator"

    return fetched(f"stores/bigtable-emulator-{MODULE.rpartition('@')[2]}", build)


class Failure(Struct, frozen=True):
    """An error status instead of an answer. With `done`, Bigtable still does the work."""

    code: grpc.StatusCode
    done: bool = False


class Interceptor(grpc.GenericRpcHandler):  # type: ignore[misc]  # gRPC has no types.
    def __init__(self, port: int) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._lock = Lock()
        self._failures: dict[str, list[Failure]] = {}
        self._unanswered: set[str] = set()
        self._closed = Event()
        self.seen: list[str] = []
        self._threads = ThreadPoolExecutor(16)
        self._server = grpc.server(self._threads, [self])
        self.port: int = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def next_time(self, call: str, *failures: Failure) -> None:
        """Fail the next calls of this name, one by each failure."""
        with self._lock:
            self._failures[call] = list(failures)

    def never_answer(self, call: str) -> None:
        """Accept calls of this name, and do not answer them before the interceptor is closed."""
        with self._lock:
            self._unanswered.add(call)

    def close(self) -> None:
        self._closed.set()
        self._server.stop(None).wait()
        self._threads.shutdown()
        self._channel.close()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        method = details.method
        name = method.rpartition("/")[2]
        if name in _UNARY:
            call = self._channel.unary_unary(method)
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: next(self._pass_on(name, lambda: [call(request)], context))
            )
        stream = self._channel.unary_stream(method)
        return grpc.unary_stream_rpc_method_handler(
            lambda request, context: self._pass_on(name, lambda: list(stream(request)), context)
        )

    def _pass_on(
        self, name: str, do: Callable[[], list[bytes]], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        with self._lock:
            self.seen.append(name)
            left = self._failures.get(name)
            failure = left.pop(0) if left else None
            unanswered = name in self._unanswered
        if unanswered:
            self._closed.wait()
            context.abort(grpc.StatusCode.CANCELLED, "the interceptor was closed")
        answers: list[bytes] = []
        try:
            if failure is None or failure.done:
                answers = do()
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
        if failure is not None:
            context.abort(failure.code, "from the interceptor")
        yield from answers


@contextmanager
def intercepting(port: int) -> Iterator[Interceptor]:
    opened = Interceptor(port)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def _emulator(_: bool) -> Iterator[Bigtable]:
    with Bigtable() as server:
        yield server


def new_store(server: Bigtable) -> EmptyStore:
    return EmptyStore.at(server.port, server.url(new_name()))


DATABASE: Final = Database("Bigtable", _emulator, new_store, histories=3)

"""A door before Bigtable: it passes calls on, and fails in its place when told to."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Lock
from typing import TYPE_CHECKING, Final

import grpc
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_UNARY: Final = frozenset({"CheckAndMutateRow", "GetTable", "CreateTable"})
"""The calls with one answer; all others stream theirs."""


class Failure(Struct, frozen=True):
    """A status in place of an answer. `done` says whether Bigtable does the work before."""

    code: grpc.StatusCode
    done: bool = False


class Door(grpc.GenericRpcHandler):  # type: ignore[misc]  # gRPC tells no types.
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
        """Fail the next calls of the name, each in its way."""
        with self._lock:
            self._failures[call] = list(failures)

    def never_answer(self, call: str) -> None:
        """Accept calls of the name and keep them waiting until the door is closed."""
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
            context.abort(grpc.StatusCode.CANCELLED, "the door was closed")
        answers: list[bytes] = []
        try:
            if failure is None or failure.done:
                answers = do()
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
        if failure is not None:
            context.abort(failure.code, "said by the door")
        yield from answers


@contextmanager
def door(port: int) -> Iterator[Door]:
    opened = Door(port)
    try:
        yield opened
    finally:
        opened.close()

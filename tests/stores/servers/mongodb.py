"""An imitation of MongoDB, and an interceptor that answers in its place at a test's request."""

from __future__ import annotations

import socket
import struct
from contextlib import closing, contextmanager
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import bson

from tests.stores.databases import Database, EmptyStore, new_name
from tests.stores.servers.jvm import jars, machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.stores.servers.jvm import Machine

ARTIFACT: Final = "de.bwaldvogel:mongo-java-server-memory-backend:1.47.0"
_HEADER: Final = struct.Struct("<iiii")
_OP_MSG: Final = 2013
_HEARTBEATS: Final = ("hello", "ismaster")

Reaction: TypeAlias = "Mapping[str, Any] | bytes | str | None"


class MongoImitation:
    """Keeps everything in memory, also while it is stopped."""

    def __init__(self, java: Machine) -> None:
        self._java = java
        self._kept = java.jvm.de.bwaldvogel.mongo.backend.memory.MemoryBackend()
        self._server: Any = None
        self.port = 0
        self.start()

    def url(self, database: str) -> str:
        return f"mongodb://127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        self._server = self._java.jvm.de.bwaldvogel.mongo.MongoServer(self._kept)
        self._server.bind("127.0.0.1", self.port)
        self.port = self._server.getLocalAddress().getPort()

    def stop(self) -> None:
        self._server.stopListening()
        cut = self._server.getClass().getDeclaredMethod("closeClients", None)
        cut.setAccessible(True)
        cut.invoke(self._server, None)


@contextmanager
def mongo_imitation() -> Iterator[MongoImitation]:
    with machine(jars(ARTIFACT)) as java:
        yield MongoImitation(java)


class Interceptor:
    """Forwards messages to a server, or reacts as `answer` decides by the name of the command.

    A document or its bytes replaces the server's answer. `CUT_BEFORE` and `CUT_AFTER` cut the
    connection before or after the server has done the command.
    """

    CUT_BEFORE: Final = "cut before"
    CUT_AFTER: Final = "cut after"

    def __init__(self, port: int) -> None:
        self._server = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.answer: Callable[[str, Mapping[str, Any]], Reaction] = _no_reaction
        self.seen: list[tuple[str, Mapping[str, Any]]] = []
        self._open: set[socket.socket] = set()
        self._lock = Lock()
        self._threads = [Thread(target=self._accept)]
        self._threads[0].start()

    def next_time(self, command: str, *answers: Reaction) -> None:
        """Give these answers to the next commands of this name, one by one."""
        left = list(answers)

        def answer(name: str, _: Mapping[str, Any]) -> Reaction:
            with self._lock:
                return left.pop(0) if name == command and left else None

        self.answer = answer

    def count(self, command: str) -> int:
        return sum(1 for name, _ in self.seen if name == command)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            for each in self._open:
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            thread = Thread(target=self._serve, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with closing(client), socket.create_connection(("127.0.0.1", self._server)) as server:
            with self._lock:
                self._open.add(client)
            try:
                while (message := _message(client)) and self._forward(message, client, server):
                    pass
            except OSError:
                pass
            finally:
                with self._lock:
                    self._open.discard(client)

    def _forward(self, message: bytes, client: socket.socket, server: socket.socket) -> bool:
        _, number, _, kind = _HEADER.unpack_from(message)
        reaction: Reaction = None
        if kind == _OP_MSG:
            command = bson.decode(message[21 : 21 + int.from_bytes(message[21:25], "little")])
            name = next(iter(command))
            if name.lower() not in _HEARTBEATS:
                self.seen.append((name, command))
            reaction = self.answer(name, command)
        if reaction == self.CUT_BEFORE:
            return False
        if reaction is None or isinstance(reaction, str):
            server.sendall(message)
            answer = _message(server)
            if reaction == self.CUT_AFTER:
                return False
            client.sendall(answer)
        else:
            document = reaction if isinstance(reaction, bytes) else bson.encode(reaction)
            body = b"\0\0\0\0\0" + document
            client.sendall(_HEADER.pack(16 + len(body), 0, number, _OP_MSG) + body)
        return True


@contextmanager
def intercepting(server: MongoImitation) -> Iterator[Interceptor]:
    with closing(Interceptor(server.port)) as opened:
        yield opened


def _message(peer: socket.socket) -> bytes:
    """The next whole message, empty if the peer closed the connection."""
    message = b""
    missing = 4
    while missing:
        some = peer.recv(missing)
        if not some:
            return b""
        message += some
        missing = (int.from_bytes(message[:4], "little") if len(message) > 3 else 4) - len(message)
    return message


def _no_reaction(_: str, __: Mapping[str, Any]) -> None:
    return None


@contextmanager
def _in_memory(_: bool) -> Iterator[MongoImitation]:
    with mongo_imitation() as server:
        yield server


def new_store(server: MongoImitation) -> EmptyStore:
    return EmptyStore.at(server.port, server.url(new_name()))


DATABASE: Final = Database("MongoDB", _in_memory, new_store, histories=12)

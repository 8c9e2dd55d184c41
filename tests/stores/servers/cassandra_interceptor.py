"""An interceptor in front of Cassandra that forwards frames, or answers at a test's request."""

from __future__ import annotations

import socket
import struct
from contextlib import closing, contextmanager, suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_HEADER: Final = struct.Struct(">BBhBI")  # Version, flags, stream, operation, length.
_ANSWER_VERSION: Final = 0x84
_ERROR: Final = 0x00
_STARTUP: Final = 0x01
_AUTHENTICATE: Final = 0x03
_QUERY: Final = 0x07
_RESULT: Final = 0x08
_PREPARE: Final = 0x09
_EXECUTE: Final = 0x0A
_AUTH_RESPONSE: Final = 0x0F
_PREPARED: Final = 4
_LOCAL_QUORUM: Final = 6
_LOCAL_SERIAL: Final = 9


class Answer(Struct, frozen=True):
    """An error of the protocol instead of an answer. With `done`, Cassandra still does the work."""

    code: int
    more: bytes = b""
    done: bool = False
    operation: int = _ERROR
    text: str = "from the interceptor"

    def body(self) -> bytes:
        if self.operation != _ERROR:
            return self.more
        return struct.pack(">i", self.code) + _text(self.text) + self.more


class Cut(Struct, frozen=True):
    """The connection ends. With `done`, Cassandra does the work before."""

    done: bool = False


class Silence(Struct, frozen=True):
    """Cassandra does the work, and its answer is dropped."""


Reaction: TypeAlias = "Answer | Cut | Silence | None"

OVERLOADED: Final = Answer(0x1001)
SERVER_ERROR: Final = Answer(0x0000)
UNAUTHORIZED: Final = Answer(0x2100)
INVALID: Final = Answer(0x2200)
UNAVAILABLE: Final = Answer(0x1000, struct.pack(">hii", _LOCAL_QUORUM, 2, 1))
READ_TIMEOUT: Final = Answer(0x1200, struct.pack(">hiib", _LOCAL_QUORUM, 1, 2, 0))


_BAD_CREDENTIALS: Final = Answer(0x0100)
_ASK_PASSWORD: Final = Answer(0, b"\0\x14AuthenticatorOfTests", operation=_AUTHENTICATE)


def cas_timeout(*, done: bool) -> Answer:
    more = struct.pack(">hii", _LOCAL_SERIAL, 1, 2) + _text("CAS")
    return Answer(0x1100, more, done)


class Executed(Struct, frozen=True):
    """An executed statement, and whether it had serial consistency."""

    text: str
    serial: bool


class Interceptor:
    """Listens on its own port. A part of a statement's text selects the reaction to it."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.refuses_passwords = False
        self.seen: list[Executed] = []
        self._part, self._left = "", list[Reaction]()
        self._before: Callable[[], object] = bool
        self._texts: dict[bytes, str] = {}
        self._lock = Lock()
        self._open: set[socket.socket] = set()
        self._threads = [Thread(target=self._accept)]
        self._threads[0].start()

    def next_time(
        self, part: str, *reactions: Reaction, before: Callable[[], object] = bool
    ) -> None:
        """React so to the next statements with `part`, one by one, after calling `before`."""
        with self._lock:
            self._part, self._left, self._before = part, list(reactions), before

    def times(self, part: str) -> int:
        return sum(part in executed.text for executed in self.seen)

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            for each in self._open:
                _end(each)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
            except OSError:
                return
            with self._lock:
                self._open |= {client, server}
            connection = _Connection(self, client, server)
            for work in (connection.forward_requests, connection.forward_answers):
                thread = Thread(target=self._serve, args=(work, client, server))
                self._threads.append(thread)
                thread.start()

    def _serve(
        self, work: Callable[[], None], client: socket.socket, server: socket.socket
    ) -> None:
        try:
            with suppress(OSError):
                work()
        finally:
            for each in (client, server):
                _end(each)

    def reaction_to(self, operation: int, body: bytes) -> Reaction:
        """Record a request, and return the reaction to it."""
        if self.refuses_passwords and operation in (_STARTUP, _AUTH_RESPONSE):
            return _ASK_PASSWORD if operation == _STARTUP else _BAD_CREDENTIALS
        if operation == _QUERY:
            size = int.from_bytes(body[:4], "big")
            return self._next_reaction(body[4 : 4 + size].decode())
        if operation != _EXECUTE:
            return None
        size = int.from_bytes(body[:2], "big")
        text = self._texts.get(body[2 : 2 + size], "")
        consistency = int.from_bytes(body[2 + size : 4 + size], "big")
        with self._lock:
            self.seen.append(Executed(text, consistency == _LOCAL_SERIAL))
        return self._next_reaction(text)

    def _next_reaction(self, text: str) -> Reaction:
        with self._lock:
            if not self._left or self._part not in text:
                return None
            reaction, before = self._left.pop(0), self._before
        before()
        return reaction

    def remember(self, id: bytes, text: str) -> None:
        self._texts[id] = text


class _Connection:
    def __init__(
        self, interceptor: Interceptor, client: socket.socket, server: socket.socket
    ) -> None:
        self._interceptor, self._client, self._server = interceptor, client, server
        self._preparing: dict[int, str] = {}
        self._instead: dict[int, Reaction] = {}
        self._lock = Lock()

    def forward_requests(self) -> None:
        while frame := _frame(self._client):
            header, body = frame
            _, _, stream, operation, _ = _HEADER.unpack(header)
            if operation == _PREPARE:
                self._preparing[stream] = body[4 : 4 + int.from_bytes(body[:4], "big")].decode()
            reaction = self._interceptor.reaction_to(operation, body)
            if isinstance(reaction, Cut) and not reaction.done:
                return
            if isinstance(reaction, Answer) and not reaction.done:
                self._answer(stream, reaction)
                continue
            self._instead[stream] = reaction
            self._server.sendall(header + body)

    def forward_answers(self) -> None:
        while frame := _frame(self._server):
            header, body = frame
            _, _, stream, operation, _ = _HEADER.unpack(header)
            if operation == _RESULT and int.from_bytes(body[:4], "big") == _PREPARED:
                size = int.from_bytes(body[4:6], "big")
                self._interceptor.remember(body[6 : 6 + size], self._preparing.get(stream, ""))
            reaction = self._instead.pop(stream, None)
            if isinstance(reaction, Cut):
                return
            if isinstance(reaction, Answer):
                self._answer(stream, reaction)
            elif reaction is None:
                with self._lock:
                    self._client.sendall(header + body)

    def _answer(self, stream: int, reaction: Answer) -> None:
        body = reaction.body()
        with self._lock:
            self._client.sendall(
                _HEADER.pack(_ANSWER_VERSION, 0, stream, reaction.operation, len(body)) + body
            )


@contextmanager
def intercepting(port: int) -> Iterator[Interceptor]:
    with closing(Interceptor(port)) as opened:
        yield opened


def _frame(peer: socket.socket) -> tuple[bytes, bytes] | None:
    """The next whole frame, or None if the peer closed the connection."""
    header = _exactly(peer, _HEADER.size)
    return (header, _exactly(peer, _HEADER.unpack(header)[4])) if header else None


def _exactly(peer: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        some = peer.recv(size - len(got))
        if not some:
            return b""
        got += some
    return got


def _end(peer: socket.socket) -> None:
    with suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)
    peer.close()


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()

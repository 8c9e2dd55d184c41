"""A server whose connections follow a script, and common scripts and answers for it."""

from __future__ import annotations

import re
import socket
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeAlias

from morag import ContentKey, Delete

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext
    from threading import Event

    from morag.client import Client

Script: TypeAlias = "Callable[[AcceptedConnection, int], None]"
"""Gets the connection and its number, from 1 on."""
HASH: Final = "ab" * 32
MAIN: Final = f'{{"reference":{{"type":"BRANCH","name":"main","hash":"{HASH}"}}}}'.encode()
"""The answer to a request for the branch `main`."""
COMMITTED: Final = (
    f'{{"targetBranch":{{"type":"BRANCH","name":"main","hash":"{HASH}"}},"addedContents":null}}'
).encode()
"""The answer to `commit`."""


class AcceptedConnection:
    """One accepted connection, from the server's side."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def read_request(self) -> bytes:
        """One request: its head, and the body if the head has its length."""
        received = b""
        while b"\r\n\r\n" not in received:
            part = self._connection.recv(65536)
            if not part:
                raise ConnectionError("the client hung up")
            received += part
        head, _, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        while length is not None and len(body) < int(length[1]):
            body += self._connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def send(self, answer: bytes) -> None:
        self._connection.sendall(answer)

    def answer(self, body: bytes, status: str = "200 OK", *headers: str) -> None:
        """Send a complete answer."""
        lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]
        self.send("\r\n".join(lines).encode() + body)

    def drop_input(self) -> None:
        """Discard the rest of the request, so that the client can read the answer."""
        self._connection.shutdown(socket.SHUT_WR)
        while self._connection.recv(1 << 20):
            pass

    def start_tls(self, tls: SSLContext) -> None:
        """Continue with TLS, as the server behind the tunnel of a proxy."""
        self._connection = tls.wrap_socket(self._connection, server_side=True)

    def disconnect(self) -> None:
        self._connection.shutdown(socket.SHUT_RDWR)


class ScriptedServer:
    """A server on its own socket that runs the script for each connection."""

    def __init__(self, script: Script, tls: SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._threads: list[Thread] = []
        self._open: list[socket.socket] = []
        self.connections = 0
        scheme = "http" if tls is None else "https"
        self.port: int = self._listening.getsockname()[1]
        self.uri = f"{scheme}://127.0.0.1:{self.port}"

    def __enter__(self) -> ScriptedServer:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in list(self._open):
            connection.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(connection)
            self.connections += 1
            self._start(partial(self._serve, connection, self.connections))

    def _serve(self, connection: socket.socket, number: int) -> None:
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            self._script(AcceptedConnection(connection), number)
        except OSError:
            pass  # The client hung up, or the test is over.
        finally:
            connection.close()

    def _start(self, work: Callable[[], None]) -> None:
        thread = Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()


def answer_main(connection: AcceptedConnection, number: int) -> None:
    """A script: the answer to every request is `MAIN`."""
    while True:
        connection.read_request()
        connection.answer(MAIN)


def close_first(closed: Event) -> Script:
    """A script that closes the first connection after one read, and sets `closed`.

    A later connection answers a read and a commit.
    """

    def script(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        connection.answer(MAIN)
        if number == 1:
            connection.disconnect()
            closed.set()
        else:
            connection.read_request()
            connection.answer(COMMITTED)

    return script


def commit(client: Client) -> str:
    """A write that takes a single request."""
    return client.commit("main", [Delete(ContentKey.of("t"))], "drop t", expected=HASH).hash

"""A server that says what it is told to."""

from __future__ import annotations

import re
import socket
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Final

from morag import ContentKey, Delete

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext
    from types import TracebackType

    from morag.client import Client

HASH: Final = "ab" * 32
MAIN: Final = f'{{"reference":{{"type":"BRANCH","name":"main","hash":"{HASH}"}}}}'.encode()
"""The answer to who asks for the branch `main`."""
COMMITTED: Final = (
    f'{{"targetBranch":{{"type":"BRANCH","name":"main","hash":"{HASH}"}},"addedContents":null}}'
).encode()
"""The answer to `commit`."""


class Talk:
    """One accepted connection, from the server's side."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def hear(self) -> bytes:
        """One request: its head, and its body if it says how long that is."""
        heard = b""
        while b"\r\n\r\n" not in heard:
            part = self._connection.recv(65536)
            if not part:
                raise ConnectionError("the client hung up")
            heard += part
        head, _, body = heard.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: (\d+)", head)
        while length is not None and len(body) < int(length[1]):
            body += self._connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def say(self, answer: bytes) -> None:
        self._connection.sendall(answer)

    def answer(self, body: bytes, status: str = "200 OK", *headers: str) -> None:
        """A complete answer, as servers give it."""
        lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]
        self.say("\r\n".join(lines).encode() + body)

    def hang_up(self) -> None:
        self._connection.shutdown(socket.SHUT_RDWR)


class Scripted:
    """A server on a socket of its own that does with each connection what the script says.

    The script gets the connection and its number, from 1 on.
    """

    def __init__(self, script: Callable[[Talk, int], None], tls: SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._threads: list[Thread] = []
        self._open: list[socket.socket] = []
        self.connections = 0
        scheme = "http" if tls is None else "https"
        self.port: int = self._listening.getsockname()[1]
        self.uri = f"{scheme}://127.0.0.1:{self.port}"

    def __enter__(self) -> Scripted:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
            self._script(Talk(connection), number)
        except OSError:
            pass  # The client hung up, or the test is over.
        finally:
            connection.close()

    def _start(self, work: Callable[[], None]) -> None:
        thread = Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()


def forever(talk: Talk, number: int) -> None:
    """A script: whatever is asked, the answer is `MAIN`."""
    while True:
        talk.hear()
        talk.answer(MAIN)


def commit(client: Client) -> str:
    """A write of a single request."""
    return client.commit("main", [Delete(ContentKey.of("t"))], "drop t", expected=HASH).hash

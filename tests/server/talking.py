"""Reading what a server says to a client that sends what it likes."""

from __future__ import annotations

import re
import select
from typing import TYPE_CHECKING, Final

from tests.serving import PATIENCE_SECONDS

if TYPE_CHECKING:
    import socket

GET_MAIN: Final = b"GET /api/v2/trees/main HTTP/1.1\r\nHost: localhost\r\n\r\n"


def read_all(client: socket.socket) -> bytes:
    heard = b""
    while part := client.recv(65536):
        heard += part
    return heard


def read_answer(client: socket.socket) -> tuple[int, bytes, bytes]:
    """One answer with a length: its status, head and body."""
    heard = b""
    while b"\r\n\r\n" not in heard:
        part = client.recv(65536)
        assert part, f"closed after {heard!r}"
        heard += part
    head, _, body = heard.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head)
    length = int(found[1]) if found else 0
    while len(body) < length:
        part = client.recv(65536)
        assert part, f"closed after {heard!r}"
        body += part
    assert len(body) == length, "more than one answer"
    return int(head.split()[1]), head, body


def await_cut(client: socket.socket) -> None:
    """Wait until the server has cut a connection whose answers nobody reads."""
    poll = select.poll()
    poll.register(client, 0)  # Errors and the end are always told.
    assert poll.poll(1000 * PATIENCE_SECONDS), "the connection is still there"

"""Reading the answers of a server from a plain socket."""

from __future__ import annotations

import re
import select
from typing import TYPE_CHECKING, Final

from tests.server_process import PATIENCE_SECONDS

if TYPE_CHECKING:
    import socket

GET_MAIN: Final = b"GET /api/v2/trees/main HTTP/1.1\r\nHost: localhost\r\n\r\n"


def read_all(client: socket.socket) -> bytes:
    received = b""
    while part := client.recv(65536):
        received += part
    return received


def read_answer(client: socket.socket) -> tuple[int, bytes, bytes]:
    """One answer with a content length: its status, head and body."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = client.recv(65536)
        assert part, f"closed after {received!r}"
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head)
    length = int(found[1]) if found else 0
    while len(body) < length:
        part = client.recv(65536)
        assert part, f"closed after {received!r}"
        body += part
    assert len(body) == length, "more than one answer"
    return int(head.split()[1]), head, body


def await_cut(client: socket.socket) -> None:
    """Wait until the server has cut a connection whose answers are not read."""
    poll = select.poll()
    poll.register(client, 0)  # Errors and hang-ups are always reported.
    assert poll.poll(1000 * PATIENCE_SECONDS), "the connection is still open"

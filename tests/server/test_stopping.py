"""Accepted requests are finished when the server stops or the client disconnects."""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import morag
from tests.server.raw_http import GET_MAIN, read_answer
from tests.server_process import Served

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

COMMIT = {
    "commitMeta": {"message": "slow"},
    "operations": [
        {
            "type": "PUT",
            "key": {"elements": ["n"]},
            "content": {"type": "NAMESPACE", "elements": ["n"]},
        }
    ],
}


@contextmanager
def write_locked(path: Path) -> Iterator[None]:
    """Hold the write lock of the database like another process, so that commits wait."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")
    finally:
        database.close()


def begin_commit(server: Served, client: socket.socket) -> None:
    """Send a commit, and return when the server has started it."""
    head = server.ask("GET", "/api/v2/trees/main").headers["etag"].strip('"')
    body = json.dumps(COMMIT).encode()
    client.sendall(
        f"POST /api/v2/trees/main@{head}/history/commit HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    # The event loop handles requests in the order of their arrival.
    for _ in range(3):
        assert server.ask("GET", "/api/v2/trees/main").status == 200


def await_not_listening(server: Served) -> None:
    while True:
        try:
            server.connect().close()
        except ConnectionError:  # Refused, or reset if it was about to be accepted.
            return


def messages(store: Path) -> list[str]:
    with morag.open(f"sqlite:{store}") as repo:
        return [entry.meta.message for entry in repo.history.log("main")]


def test_a_slow_commit_is_finished_before_the_server_ends(tmp_path: Path) -> None:
    store = tmp_path / "morag.db"
    with Served(tmp_path, store=f"sqlite:{store}") as server:
        with server.connect() as client, server.connect() as idle:
            with write_locked(store):
                begin_commit(server, client)
                server.process.terminate()
                await_not_listening(server)
                assert idle.recv(1) == b"", "an idle connection must be closed at once"
            status, head, body = read_answer(client)
            assert (status, client.recv(1)) == (200, b"")
            assert b"connection: close" in head
            assert json.loads(body)["targetBranch"]["name"] == "main"
        assert server.process.wait(30) == 0
        assert server.errors() == ""
    assert messages(store) == ["slow"]


def test_a_commit_is_made_although_its_client_disconnects(tmp_path: Path) -> None:
    store = tmp_path / "morag.db"
    with Served(tmp_path, store=f"sqlite:{store}") as server:
        with write_locked(store):
            with server.connect() as client:
                begin_commit(server, client)
            server.process.terminate()
            await_not_listening(server)
        assert server.process.wait(30) == 0
    assert messages(store) == ["slow"]


def test_a_server_that_stops_waits_for_the_rest_of_a_body(tmp_path: Path) -> None:
    with Served(tmp_path) as server, server.connect() as client:
        head = b"POST /nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
        client.sendall(head + b"Expect: 100-continue\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 100")
        server.process.terminate()
        await_not_listening(server)
        client.sendall(b"12345")
        status, head, _ = read_answer(client)
        assert status == 404
        assert b"connection: close" in head


def test_pipelined_requests_count_as_accepted(tmp_path: Path) -> None:
    store = tmp_path / "morag.db"
    with Served(tmp_path, store=f"sqlite:{store}") as server, server.connect() as client:
        with write_locked(store):
            begin_commit(server, client)
            client.sendall(2 * GET_MAIN)
            assert server.ask("GET", "/api/v2/trees/main").status == 200
            server.process.terminate()
            await_not_listening(server)
        received = b""
        while part := client.recv(65536):
            received += part
        assert received.count(b"HTTP/1.1 200") == 3


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_stopping_server_waits_for_a_limited_time(tmp_path: Path, workers: str) -> None:
    store = tmp_path / "morag.db"
    flags = ("--shutdown-seconds", "0.3", "--commit-timeout-ms", "60000", "--workers", workers)
    with Served(tmp_path, *flags, store=f"sqlite:{store}", exit_code=1) as server:
        with server.connect() as client, write_locked(store):
            begin_commit(server, client)
            server.process.terminate()
            server.process.wait(30)
        assert server.errors() == "Stopped with 1 requests unfinished\n"

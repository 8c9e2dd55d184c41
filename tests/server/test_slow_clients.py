"""Clients that are slow, silent, greedy or broken do not affect others."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import pytest

import morag
from morag import ContentKey, Namespace, Put
from tests.server.raw_http import GET_MAIN, await_cut, read_all, read_answer
from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES = b"GET /api/v2/trees/main/entries?content=true HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with short time-outs and a large listing."""
    directory = tmp_path_factory.mktemp("impatient")
    with morag.open(f"rocksdb:{directory / 'data'}") as repo:
        properties = {"filler": 2000 * "x"}
        names = [f"n{number}" for number in range(100)]
        puts = [
            Put(ContentKey.of(name), morag.replace(Namespace.of(name), properties=properties))
            for name in names
        ]
        repo.commit("main", puts, "a lot")
    flags = {
        "--slow-client-seconds": "0.5",
        "--idle-timeout-seconds": "1",
        "--gzip-min-bytes": "100000000",
    }
    arguments = [word for pair in flags.items() for word in pair]
    with Served(directory, *arguments, store="rocksdb:./data") as server:
        yield server


def test_a_client_that_sends_nothing_is_closed(impatient: Served) -> None:
    with impatient.connect() as client:
        assert read_all(client) == b""


def test_an_idle_connection_is_closed(impatient: Served) -> None:
    with impatient.connect() as client:
        client.sendall(GET_MAIN)
        assert read_answer(client)[0] == 200
        assert client.recv(1) == b""


def test_a_connection_with_an_endless_head_is_closed(impatient: Served) -> None:
    with impatient.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        client.settimeout(0.05)
        received = b""
        while not received:
            client.sendall(b"x")
            try:
                received = client.recv(65536)
            except TimeoutError:
                continue
        assert received.startswith(b"HTTP/1.1 408")


def test_a_connection_without_the_announced_body_is_closed(impatient: Served) -> None:
    with impatient.connect() as client:
        client.sendall(b"POST /nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345")
        assert read_all(client).startswith(b"HTTP/1.1 408")


def test_answers_are_not_made_for_a_client_that_does_not_read(impatient: Served) -> None:
    """The client requests hundreds of answers of 200 kB; the process must not keep them."""
    assert len(impatient.ask("GET", "/api/v2/trees/main/entries?content=true").body) > 200_000
    before = impatient.resident_bytes()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((impatient.host, impatient.port))
        client.sendall(400 * ENTRIES)
        await_cut(client)
        assert impatient.resident_bytes() - before < 40_000_000
    assert impatient.ask("GET", "/api/v2/trees/main").status == 200


def test_a_client_that_reads_slowly_but_steadily_gets_the_whole_answer(impatient: Served) -> None:
    whole = impatient.ask("GET", "/api/v2/trees/main/entries?content=true").body
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(30)
        client.connect((impatient.host, impatient.port))
        client.sendall(40 * ENTRIES)
        received = 0
        while received < 40 * len(whole):
            part = client.recv(16_384)
            assert part, "the connection was cut"
            received += len(part)


def test_broken_connections_leave_nothing_behind(impatient: Served) -> None:
    files = impatient.open_files()
    unfinished = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1"
    for sent in (b"", b"GET", unfinished, 50 * ENTRIES):
        for _ in range(10):
            with impatient.connect() as client:
                client.sendall(sent)
                reset_at_close = struct.pack("ii", 1, 0)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset_at_close)
    assert impatient.ask("GET", "/api/v2/trees/main").status == 200
    while impatient.open_files() > files:
        assert impatient.ask("GET", "/api/v2/trees/main").status == 200
    assert impatient.errors() == ""

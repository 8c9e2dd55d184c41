"""More connections than slots: which connection is closed, and which is refused."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from time import sleep
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct

from morag.server.connection_slots import ConnectionSlots
from tests.server.edge_on_socket import GET, LAST, Gate, serving
from tests.server.raw_http import GET_MAIN, read_all, read_answer
from tests.server_process import PATIENCE_SECONDS, Served

if TYPE_CHECKING:
    from pathlib import Path

MANY = "127.0.0.1"
OTHER = "127.0.0.2"
UNFINISHED = b"GET /api/v2/trees/main HTTP/1.1\r\nHost: local"


class Peer:
    """Clients of one server, each with its own address."""

    def __init__(self, server: Served, stack: ExitStack) -> None:
        self._server = server
        self._stack = stack

    def connect(self, address: str, sent: bytes) -> socket.socket:
        client = socket.create_connection(
            self._server.address, PATIENCE_SECONDS, source_address=(address, 0)
        )
        self._stack.enter_context(client)
        client.sendall(sent)
        return client

    def connect_in_order(self, address: str, count: int, sent: bytes) -> list[socket.socket]:
        """Connect with pauses, because the server's clock ticks in milliseconds."""
        clients = []
        for _ in range(count):
            clients.append(self.connect(address, sent))
            sleep(0.02)
        return clients


def status(client: socket.socket) -> int:
    return read_answer(client)[0]


def test_the_connection_that_was_idle_for_longest_is_closed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(Served(tmp_path, "--max-connections", "5"))
        peer = Peer(server, stack)
        clients = peer.connect_in_order(MANY, 5, GET_MAIN)
        assert [status(client) for client in clients] == 5 * [200]
        clients[0].sendall(GET_MAIN)
        assert status(clients[0]) == 200
        assert status(peer.connect(MANY, GET_MAIN)) == 200
        assert clients[1].recv(1) == b""
        for still_there in (*clients[2:], clients[0]):
            still_there.sendall(GET_MAIN)
            assert status(still_there) == 200


def test_idle_connections_of_one_client_do_not_keep_others_out(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(Served(tmp_path, "--max-connections", "200"))
        peer = Peer(server, stack)
        modest = peer.connect(OTHER, GET_MAIN)
        assert status(modest) == 200
        for _ in range(250):
            peer.connect(MANY, b"")
        for _ in range(50):
            assert status(peer.connect(OTHER, GET_MAIN)) == 200
        modest.sendall(GET_MAIN)
        assert status(modest) == 200


def test_unfinished_requests_of_one_client_keep_only_this_client_out(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(Served(tmp_path, "--max-connections", "5"))
        peer = Peer(server, stack)
        slow = peer.connect_in_order(MANY, 5, UNFINISHED)
        refused = read_all(peer.connect(MANY, b""))
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in refused
        assert status(peer.connect(OTHER, GET_MAIN)) == 200
        with pytest.raises(ConnectionResetError):
            slow[0].recv(1)
        slow[1].sendall(b"host\r\n\r\n")
        assert status(slow[1]) == 200


def test_requests_that_are_being_answered_are_not_cut() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with serving(gate.answer, max_connections=3) as server:
            pending = [asyncio.create_task(server.exchange(LAST)) for _ in range(3)]
            for _ in pending:
                await asyncio.wait_for(gate.arrived.acquire(), 30)
            for address in (MANY, OTHER):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", server.port, local_addr=(address, 0)
                )
                writer.write(GET)
                assert (await asyncio.wait_for(reader.read(), 30)).startswith(b"HTTP/1.1 503")
                writer.close()
            gate.open()
            assert [(await task)[-4:] for task in pending] == 3 * [b"done"]

    asyncio.run(scenario())


class Holder(Struct, eq=False):
    network: str
    idle_since: float | None = None
    stalled_since: float | None = None
    ended: str = ""

    def close_idle(self) -> None:
        self.ended = "closed"

    def hang_up(self) -> None:
        self.ended = "cut"


def taken(slots: ConnectionSlots, *holders: Holder) -> tuple[Holder, ...]:
    assert all(map(slots.take, holders))
    return holders


def test_a_client_cannot_displace_idle_connections_of_clients_with_fewer() -> None:
    slots = ConnectionSlots(4, lambda: 0)
    idle, *_ = taken(slots, Holder("modest", idle_since=1), *3 * [Holder("greedy")])
    taken(slots, Holder("greedy"), Holder("greedy"))
    assert not slots.take(Holder("greedy"))
    assert not idle.ended
    assert slots.take(Holder("another"))
    assert [idle.ended] == ["closed"]


def test_behind_a_proxy_all_are_one_client_and_the_longest_idle_is_closed() -> None:
    slots = ConnectionSlots(3, lambda: 0)
    reading = Holder("proxy", stalled_since=1)
    newer, older = Holder("proxy", idle_since=3), Holder("proxy", idle_since=2)
    taken(slots, reading, newer, older, Holder("proxy", stalled_since=4))
    assert [one.ended for one in (reading, newer, older)] == ["", "", "closed"]
    taken(slots, Holder("proxy", stalled_since=5))
    assert [one.ended for one in (reading, newer)] == ["", "closed"]
    assert not slots.take(Holder("proxy"))


def test_a_client_with_half_of_the_slots_keeps_them() -> None:
    slots = ConnectionSlots(4, lambda: 0)
    one, *_ = taken(slots, *(Holder("half", stalled_since=n) for n in range(2)))
    taken(slots, Holder("a"), Holder("b"))
    assert not slots.take(Holder("c"))
    assert not one.ended


def test_a_flood_searches_once_for_many_newcomers() -> None:
    reads = 0

    class Counted(Holder, eq=False):
        def __getattribute__(self, name: str) -> object:
            nonlocal reads
            reads += name == "network"
            return super().__getattribute__(name)

    now = 0.0
    slots = ConnectionSlots(1000, lambda: now)
    taken(slots, *(Counted("flood", idle_since=n) for n in range(3000)))
    assert reads < 400_000  # One search for each newcomer would read two million.
    stuck = ConnectionSlots(1000, lambda: now)
    taken(stuck, *(Counted("flood") for _ in range(1000)))
    reads = 0
    assert not any(stuck.take(Counted("flood")) for _ in range(1000))
    assert reads < 5_000
    now += 1
    assert not stuck.take(Counted("flood"))

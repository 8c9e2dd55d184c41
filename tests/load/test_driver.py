"""The driver counts what succeeded and reports what failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from morag.client.errors import ServerUnreachable
from morag.load.driver import Client, Steps, drive
from tests.client.scripted_server import ScriptedServer

if TYPE_CHECKING:
    from tests.client.scripted_server import AcceptedConnection

GET = b"GET / HTTP/1.1\r\n\r\n"


def repeat(times: int, units: int = 1) -> Steps:
    for _ in range(times):
        yield GET, units


def test_all_units_and_durations_are_counted() -> None:
    with ScriptedServer(answering(b"[1, 2]")) as server:
        outcome = drive(("127.0.0.1", server.port), [Client(repeat(3, units=2)) for _ in range(4)])
    assert (outcome.units, outcome.failures) == (24, 0)
    assert len(outcome.latencies_seconds) == 12
    assert 0 < outcome.percentile_seconds(50) <= outcome.percentile_seconds(99.9) < outcome.seconds


def test_a_cycle_of_requests_counts_at_its_end_and_is_finished_after_the_time() -> None:
    def cycles() -> Steps:
        while True:
            yield GET, 0
            yield GET, 0
            yield GET, 1

    served: list[int] = []
    with ScriptedServer(answering(b"{}", served)) as server:
        outcome = drive(("127.0.0.1", server.port), [Client(cycles())], seconds=0.0)
    assert (outcome.units, len(outcome.latencies_seconds), len(served)) == (1, 1, 3)


def test_a_client_continues_in_the_next_slice_where_it_stopped() -> None:
    with ScriptedServer(answering(b"{}")) as server:
        clients = [Client(repeat(2))]
        for _ in range(2):
            assert drive(("127.0.0.1", server.port), clients, seconds=0.0).units == 1


def test_another_status_is_a_failure_and_the_client_goes_on() -> None:
    received: list[bytes] = []

    def twice() -> Steps:
        received.append((yield GET, 1))
        received.append((yield GET, 1))

    def script(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        connection.answer(b"no", "409 Conflict")
        connection.read_request()
        connection.answer(b"yes")

    with ScriptedServer(script) as server:
        outcome = drive(("127.0.0.1", server.port), [Client(twice())])
    assert (outcome.units, outcome.failures) == (1, 1)
    assert outcome.shown_failures[0].startswith("HTTP/1.1 409 Conflict\r\n")
    assert received[0] == b""
    assert received[1].endswith(b"yes")


def test_a_lost_connection_is_a_failure_and_the_others_go_on() -> None:
    def script(connection: AcceptedConnection, number: int) -> None:
        if number > 1:
            answering(b"{}")(connection, number)

    with ScriptedServer(script) as server:
        outcome = drive(("127.0.0.1", server.port), [Client(repeat(3)) for _ in range(2)])
    assert (outcome.units, outcome.failures) == (3, 1)
    assert outcome.shown_failures == ["the server closed a connection"]


def test_the_first_response_of_a_slice_is_counted_again() -> None:
    def count(page: Any) -> int:
        return len(page)

    with ScriptedServer(answering(b"[1, 2]")) as server:
        good = drive(("127.0.0.1", server.port), [Client(repeat(2, units=2), count)])
        bad = drive(("127.0.0.1", server.port), [Client(repeat(2, units=3), count)])
    assert good.failures == 0
    assert bad.shown_failures == ["a response has 2 units, not 3"]


def test_a_request_larger_than_the_buffers_is_sent_completely() -> None:
    body = b"x" * 8_000_000
    received: list[int] = []

    def script(connection: AcceptedConnection, number: int) -> None:
        received.append(len(connection.read_request()))
        connection.answer(b"{}")

    def large() -> Steps:
        yield b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body), 1

    with ScriptedServer(script) as server:
        assert drive(("127.0.0.1", server.port), [Client(large())]).units == 1
    assert received[0] > len(body)


def test_no_server_is_an_error() -> None:
    with ScriptedServer(answering(b"")) as server:
        port = server.port
    with pytest.raises(ServerUnreachable, match=f"Cannot connect to 127.0.0.1:{port}"):
        drive(("127.0.0.1", port), [Client(repeat(1))])


def answering(body: bytes, served: list[int] | None = None) -> Any:
    """A script: the same answer to every request."""

    def script(connection: AcceptedConnection, number: int) -> None:
        while True:
            connection.read_request()
            connection.answer(body)
            if served is not None:
                served.append(number)

    return script

"""Data that was parsed before gives the same requests as if it were parsed again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morag.api.http import Client, Request, Response
from morag.config import ServerSettings
from morag.server import repeated_requests
from morag.server.admission import Admission
from morag.server.client_address import ClientAddresses
from morag.server.connection_states import HEAD, IDLE
from morag.server.memory_limits import LargeBodies
from morag.server.repeated_requests import LONGEST_BYTES, Parsed, RepeatedRequests
from morag.server.request_parser import Received, RequestParser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.server.edge import Edge

SETTINGS: Final = ServerSettings()
HOST: Final = b" HTTP/1.1\r\nHost: localhost\r\n"
GET: Final = b"GET /a?b=c" + HOST + b"\r\n"
PIECES: Final = (
    GET,
    b"GET /b" + HOST + b"Accept: text/html\r\n\r\n",
    b"GET http://localhost/a" + HOST + b"\r\n",
    b"GET /a" + HOST + b"Content-Length: 2\r\n\r\nxy",
    b"GET /a" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /a" + HOST + b"Connection: close\r\n\r\n",
    b"GET /a" + HOST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    b"GET /a" + HOST + b"X-Forwarded-For: 10.0.0.1\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"GET /a HTTP/1.0\r\n\r\n",
    b"HEAD /a" + HOST + b"\r\n",
    b"POST /a" + HOST + b"Content-Length: 2\r\n\r\nxy",
    b"\r\n",
    b"GET /a",
    HOST + b"\r\n",
    b"?",
)


class Forgetful(RepeatedRequests):
    def find(self, data: bytes) -> Parsed | None:
        return None


class Events:
    """Notes what a parser reports."""

    def __init__(self) -> None:
        self.noted: list[object] = []
        self.accepted: list[Received] = []

    def accept(self, request: Received, keep: bool) -> None:
        self.accepted.append(request)
        self.noted.append((seen(request), request.takes_chunks, keep))

    def refuse(self, response: Response, request: Received | None = None) -> None:
        self.noted.append((response, request and seen(request)))
        self.parser.end()

    def expect(self) -> None:
        self.noted.append("expect")

    def ignore(self, data: bytes) -> None:
        self.noted.append(data)

    parser: RequestParser


def seen(request: Request) -> object:
    return (
        request.method,
        request.path,
        request.query,
        list(request.headers),
        request.body,
        request.client.address,
    )


def connected(repeated: RepeatedRequests) -> Events:
    """What arrives on a new connection of a server that remembers these requests."""
    edge: Any = SimpleNamespace(
        settings=SETTINGS,
        admission=Admission(SETTINGS, loopback_only=True),
        client_addresses=ClientAddresses(("127.0.0.1",)),
        large_bodies=LargeBodies(1 << 20),
        repeated_requests=repeated,
        failure=lambda request, error: Response(error.status, str(error).encode()),
    )
    events = Events()
    events.parser = RequestParser(events, cast("Edge", edge), Client("127.0.0.1"), lambda: 0.0)
    return events


def parsed(repeated: RepeatedRequests, received: Sequence[bytes]) -> Events:
    events = connected(repeated)
    for data in received:
        events.parser.parse(data)
    return events


arriving = st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map(b"".join))


@given(st.lists(arriving, max_size=4))
def test_repeated_data_gives_the_same_requests(connections: list[list[bytes]]) -> None:
    repeated = RepeatedRequests()
    for received in connections:
        found, expected = parsed(repeated, received), parsed(Forgetful(), received)
        assert found.noted == expected.noted
        assert found.parser.state is expected.parser.state
        assert found.parser.client.address == expected.parser.client.address


def test_requests_with_the_same_bytes_share_a_memo() -> None:
    repeated = RepeatedRequests()
    first, second, third = parsed(repeated, [GET, GET, GET]).accepted
    (fourth,) = parsed(repeated, [GET]).accepted
    assert second.memo is third.memo is fourth.memo
    assert first.memo is not second.memo, "it was parsed before anybody knew that it is repeated"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(2 * GET, id="two requests"),
        pytest.param(GET + b"GET", id="a request and the start of another one"),
        pytest.param(GET.replace(b"GET", b"POST"), id="a change"),
        pytest.param(GET[:-2] + b"Content-Length: 1\r\n\r\nx", id="a request with a body"),
        pytest.param(GET[:-2] + b"Connection: close\r\n\r\n", id="the last request"),
        pytest.param(GET[:-2] + b"x: " + LONGEST_BYTES * b"y" + b"\r\n\r\n", id="a long request"),
    ],
)
def test_other_data_is_parsed_each_time(data: bytes) -> None:
    repeated = RepeatedRequests()
    parsed(repeated, [data])
    assert repeated.find(data) is None


def test_the_end_of_a_request_is_no_request_of_its_own() -> None:
    repeated = RepeatedRequests()
    parsed(repeated, [GET[:6], GET[6:]])
    assert repeated.find(GET[6:]) is None


def test_a_body_that_looks_like_a_known_request_is_a_body() -> None:
    repeated = RepeatedRequests()
    parsed(repeated, [GET])
    head = b"POST /a" + HOST + b"Content-Length: %d\r\n\r\n" % len(GET)
    (request,) = parsed(repeated, [head, GET]).accepted
    assert request.body == GET


def test_the_start_of_a_request_after_a_complete_one_is_noticed() -> None:
    """Otherwise its sender could take as long as an idle client."""
    assert parsed(RepeatedRequests(), [GET]).parser.state is IDLE
    assert parsed(RepeatedRequests(), [GET + b"GET"]).parser.state is HEAD


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_requests, "MOST_BYTES", 64 * 1024)
    repeated = RepeatedRequests()
    sent = [GET.replace(b"/a", b"/%d" % number) for number in range(500)]
    for data in sent:
        parsed(repeated, [data])
    known = [data for data in sent if repeated.find(data) is not None]
    assert 20 < len(known) < 60
    assert known == sent[-len(known) :], "the newest ones"


def test_a_request_that_was_remembered_twice_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_requests, "MOST_BYTES", 64 * 1024)
    repeated = RepeatedRequests()
    offer = GET[:-2] + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    for _ in range(1000):  # The same request without the offer, which no connection receives.
        parsed(repeated, [offer])
    parsed(repeated, [GET])
    assert len(repeated._parsed) == 2

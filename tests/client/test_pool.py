"""Connections that are kept, shared, lost, refused and secured."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from morag import BadRequest, CommitMeta, ContentKey, Delete, MoragError
from morag.client import Client, OutcomeUnknown, ServerUnreachable, UnexpectedAnswer
from morag.errors import ServiceUnavailable
from tests.client.servers import COMMITTED, HASH, MAIN, Scripted, Talk, commit, forever


def test_one_connection_carries_many_requests() -> None:
    with Scripted(forever) as server, Client(server.uri) as client:
        for _ in range(5):
            assert client.references.get("main").hash == HASH
        assert server.connections == 1


def test_a_server_that_closes_is_connected_to_anew() -> None:
    def one_answer(talk: Talk, number: int) -> None:
        talk.hear()
        talk.answer(MAIN, "200 OK", "Connection: close")

    with Scripted(one_answer) as server, Client(server.uri) as client:
        for _ in range(3):
            client.references.get("main")
        assert server.connections == 3


def test_an_idle_connection_that_was_closed_is_not_used_again() -> None:
    closed = Event()

    def script(talk: Talk, number: int) -> None:
        talk.hear()
        talk.answer(MAIN)
        if number == 1:
            talk.hang_up()
            closed.set()
        else:
            talk.hear()
            talk.answer(COMMITTED)

    with Scripted(script) as server, Client(server.uri) as client:
        client.references.get("main")
        assert closed.wait(10)
        client.references.get("main")
        assert commit(client) == HASH  # A write, too, goes over a connection that is alive.
        assert server.connections == 2


def test_a_read_on_a_connection_that_dies_is_repeated() -> None:
    """The server closes an idle connection at the moment when the next request is sent."""

    def script(talk: Talk, number: int) -> None:
        talk.hear()
        talk.answer(MAIN)
        if number == 1:
            talk.hear()
            talk.hang_up()
        else:
            talk.hear()
            talk.answer(MAIN)

    with Scripted(script) as server, Client(server.uri) as client:
        assert client.references.get("main").hash == HASH
        assert client.references.get("main").hash == HASH
        assert server.connections == 2


def test_a_read_that_is_sent_as_a_post_is_repeated_as_well() -> None:
    def script(talk: Talk, number: int) -> None:
        talk.hear()
        talk.answer(b'{"contents":[]}')
        if number == 1:
            assert talk.hear().startswith(b"POST /api/v2/trees/main/contents ")
            talk.hang_up()
        else:
            talk.hear()
            talk.answer(b'{"contents":[]}')

    with Scripted(script) as server, Client(server.uri) as client:
        for _ in range(2):
            assert client.contents.get_all("main", [ContentKey.of("t")]) == {}
        assert server.connections == 2


def test_a_write_is_never_sent_twice() -> None:
    heard: list[bytes] = []

    def script(talk: Talk, number: int) -> None:
        talk.hear()
        talk.answer(MAIN)
        heard.append(talk.hear())
        talk.hang_up()

    with Scripted(script) as server, Client(server.uri) as client:
        client.references.get("main")
        with pytest.raises(OutcomeUnknown, match="Whether the change was made is unknown"):
            commit(client)
        assert server.connections == 1
    assert [each.partition(b"@")[0] for each in heard] == [b"POST /api/v2/trees/main"]


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\ncontent-le", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"],
    ids=["nothing", "half a head", "half a body"],
)
def test_half_an_answer_to_a_write_leaves_its_outcome_unknown(answer: bytes) -> None:
    def script(talk: Talk, number: int) -> None:
        talk.hear()
        talk.say(answer)
        talk.hang_up()

    with Scripted(script) as server, Client(server.uri) as client:
        with pytest.raises(OutcomeUnknown):
            client.references.delete("main", HASH)
        with pytest.raises(ServerUnreachable, match="hung up before it had answered") as raised:
            client.references.get("main")
        assert not isinstance(raised.value, OutcomeUnknown)


def test_a_silent_server_is_not_waited_for_forever() -> None:
    done = Event()

    def silent(talk: Talk, number: int) -> None:
        talk.hear()
        done.wait(30)

    with Scripted(silent) as server, Client(server.uri, timeout_seconds=0.2) as client:
        with pytest.raises(ServerUnreachable, match=r"was silent for 0\.2 s.*timeout_seconds"):
            client.references.get("main")
        with pytest.raises(OutcomeUnknown, match="unknown"):
            commit(client)
        assert server.connections == 2  # A slow read is not asked again, either.
        done.set()


def test_a_late_answer_is_not_taken_for_the_next_one() -> None:
    timed_out = Event()
    other = MAIN.replace(b"abab", b"cdcd")

    def script(talk: Talk, number: int) -> None:
        talk.hear()
        if number == 1:
            assert timed_out.wait(30)
            talk.answer(other)
        else:
            talk.answer(MAIN)

    with Scripted(script) as server, Client(server.uri, timeout_seconds=0.2) as client:
        with pytest.raises(ServerUnreachable):
            client.references.get("main")
        timed_out.set()
        assert client.references.get("main").hash == HASH


def test_where_nothing_listens_the_error_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    client = Client(f"http://127.0.0.1:{port}")
    told = f"Nothing listens at http://127.0.0.1:{port}: check"
    for do in (lambda: client.references.get("main"), lambda: commit(client)):
        with pytest.raises(ServerUnreachable, match=told) as raised:
            do()
        assert not isinstance(raised.value, OutcomeUnknown)  # It was never sent.
        assert isinstance(raised.value, ServiceUnavailable)


def test_a_host_that_does_not_exist_is_named() -> None:
    with pytest.raises(ServerUnreachable, match=r"No host is called 'nowhere\.invalid'"):
        Client("http://nowhere.invalid:19120").config()


def test_a_server_that_speaks_something_else_is_told_apart() -> None:
    def ssh(talk: Talk, number: int) -> None:
        talk.say(b"SSH-2.0-OpenSSH_9.2\r\n")
        talk.hear()

    told = r"does not answer in HTTP .*SSH-2\.0"
    with (
        Scripted(ssh) as server,
        Client(server.uri) as client,
        pytest.raises(ServerUnreachable, match=told),
    ):
        client.config()


def test_threads_share_no_more_connections_than_allowed() -> None:
    with Scripted(forever) as server, Client(server.uri, connections=3) as client:
        start = Barrier(12)

        def ask(_: int) -> str:
            start.wait()
            return {client.references.get("main").hash for _ in range(20)}.pop()

        with ThreadPoolExecutor(12) as threads:
            assert set(threads.map(ask, range(12))) == {HASH}
        assert 1 <= server.connections <= 3


def test_all_connections_busy_for_too_long_is_told() -> None:
    heard, done = Event(), Event()

    def script(talk: Talk, number: int) -> None:
        talk.hear()
        heard.set()
        while not done.wait(0.02):  # Not silent, but not done either.
            talk.say(b"HTTP/1.1 100 Continue\r\n\r\n")
        talk.answer(MAIN)

    with (
        Scripted(script) as server,
        Client(server.uri, connections=1, timeout_seconds=0.5) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        slow = threads.submit(client.references.get, "main")
        assert heard.wait(10)
        with pytest.raises(ServerUnreachable, match=r"All 1 connections .* were busy"):
            client.references.get("main")
        done.set()
        assert slow.result(10).hash == HASH


def test_a_closed_client_says_so() -> None:
    with Scripted(forever) as server:
        client = Client(server.uri)
        client.references.get("main")
        client.close()
        with pytest.raises(ServerUnreachable, match="is closed"):
            client.references.get("main")


def test_headers_go_with_every_request_and_into_no_message() -> None:
    heard: list[bytes] = []

    def script(talk: Talk, number: int) -> None:
        heard.append(talk.hear())
        talk.answer(b"no", "401 Unauthorized", "Connection: close")

    with (
        Scripted(script) as server,
        Client(server.uri, token="s3cret", headers={"X-Who": "Änn"}) as client,
    ):
        with pytest.raises(UnexpectedAnswer, match="pass a token") as raised:
            client.config()
        assert b"\r\nauthorization: Bearer s3cret\r\n" in heard[0]
        assert "\r\nx-who: Änn\r\n".encode("latin-1") in heard[0]
        assert b"\r\nnessie-client-spec: 2\r\n" in heard[0]
        assert heard[0].count(b"\r\nhost: ") == 1
        assert f"\r\nhost: 127.0.0.1:{server.port}\r\n".encode() in heard[0]
        for shown in (str(raised.value), repr(raised.value), repr(client)):
            assert "s3cret" not in shown


@pytest.mark.parametrize(
    "headers",
    [{"a b": "c"}, {"": "c"}, {"a": "b\r\nc: d"}, {"a": "☃"}, {"Host": "x"}, {"a:": "b"}],
    ids=str,
)
def test_headers_that_no_request_can_have_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(BadRequest, match="Header"):
        Client("http://127.0.0.1", headers=headers)


def test_a_token_cannot_smuggle_anything() -> None:
    with pytest.raises(BadRequest) as raised:
        Client("http://127.0.0.1", token="s3cret\r\nx: y")
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("wrong", [{"timeout_seconds": 0}, {"connections": 0}], ids=str)
def test_a_client_needs_time_and_connections(wrong: dict[str, int]) -> None:
    with pytest.raises(BadRequest):
        Client("http://127.0.0.1", **wrong)  # type: ignore[arg-type]


def test_every_error_of_the_way_is_one_of_ours() -> None:
    for kind in (ServerUnreachable, OutcomeUnknown, UnexpectedAnswer):
        assert issubclass(kind, MoragError)
        assert kind.code and kind.status


def test_metadata_is_sent_as_the_client_said_it() -> None:
    heard: list[bytes] = []

    def script(talk: Talk, number: int) -> None:
        heard.append(talk.hear())
        talk.answer(COMMITTED)

    with Scripted(script) as server, Client(server.uri) as client:
        meta = CommitMeta(message="m", authors=("Ann",))
        client.commit("a/b", [Delete(ContentKey.of("t"))], meta, expected=HASH)
    head, _, body = heard[0].partition(b"\r\n\r\n")
    assert head.startswith(f"POST /api/v2/trees/a%2Fb@{HASH}/history/commit HTTP/1.1".encode())
    assert body == (
        b'{"commitMeta":{"message":"m","authors":["Ann"]},'
        b'"operations":[{"type":"DELETE","key":{"elements":["t"]}}]}'
    )

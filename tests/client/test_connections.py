"""Connections that are kept, shared, lost, refused, redirected and proxied."""

from __future__ import annotations

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from morag import BadRequest, CommitMeta, ContentKey, Delete, MoragError
from morag.client import Client, OutcomeUnknown, ServerUnreachable, UnexpectedAnswer, connections
from morag.client.connections import proxy_from_environment
from morag.client.server_uris import parse_server_uri
from morag.errors import ServiceUnavailable
from tests.client.scripted_server import (
    COMMITTED,
    HASH,
    MAIN,
    AcceptedConnection,
    ScriptedServer,
    answer_main,
    close_first,
    commit,
)


def test_one_connection_carries_many_requests() -> None:
    with ScriptedServer(answer_main) as server, Client(server.uri) as client:
        for _ in range(5):
            assert client.references.get("main").hash == HASH
        assert server.connections == 1


def test_a_client_reconnects_to_a_server_that_closes_connections() -> None:
    def one_answer(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        connection.answer(MAIN, "200 OK", "Connection: close")

    with ScriptedServer(one_answer) as server, Client(server.uri) as client:
        for _ in range(3):
            client.references.get("main")
        assert server.connections == 3


def test_an_idle_connection_that_was_closed_is_not_used_again() -> None:
    closed = Event()
    with ScriptedServer(close_first(closed)) as server, Client(server.uri) as client:
        client.references.get("main")
        assert closed.wait(10)
        client.references.get("main")
        assert commit(client) == HASH  # A write uses a live connection, too.
        assert server.connections == 2


def test_a_read_on_a_connection_that_dies_is_repeated() -> None:
    """The server closes an idle connection at the moment when the next request is sent."""

    def script(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        connection.answer(MAIN)
        if number == 1:
            connection.read_request()
            connection.disconnect()
        else:
            connection.read_request()
            connection.answer(MAIN)

    with ScriptedServer(script) as server, Client(server.uri) as client:
        assert client.references.get("main").hash == HASH
        assert client.references.get("main").hash == HASH
        assert server.connections == 2


def test_a_read_that_is_sent_as_a_post_is_repeated_as_well() -> None:
    def script(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        connection.answer(b'{"contents":[]}')
        if number == 1:
            assert connection.read_request().startswith(b"POST /api/v2/trees/main/contents ")
            connection.disconnect()
        else:
            connection.read_request()
            connection.answer(b'{"contents":[]}')

    with ScriptedServer(script) as server, Client(server.uri) as client:
        for _ in range(2):
            assert client.contents.get_all("main", [ContentKey.of("t")]) == {}
        assert server.connections == 2


def test_a_write_is_never_sent_twice() -> None:
    requests: list[bytes] = []

    def script(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        connection.answer(MAIN)
        requests.append(connection.read_request())
        connection.disconnect()

    with ScriptedServer(script) as server, Client(server.uri) as client:
        client.references.get("main")
        with pytest.raises(OutcomeUnknown, match="It is unknown whether the change was made"):
            commit(client)
        assert server.connections == 1
    assert [each.partition(b"@")[0] for each in requests] == [b"POST /api/v2/trees/main"]


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\ncontent-le", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"],
    ids=["nothing", "half a head", "half a body"],
)
def test_half_an_answer_to_a_write_leaves_its_outcome_unknown(answer: bytes) -> None:
    def script(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        connection.send(answer)
        connection.disconnect()

    with ScriptedServer(script) as server, Client(server.uri) as client:
        with pytest.raises(OutcomeUnknown):
            client.references.delete("main", HASH)
        with pytest.raises(
            ServerUnreachable, match="closed the connection before it responded"
        ) as raised:
            client.references.get("main")
        assert not isinstance(raised.value, OutcomeUnknown)


def test_a_silent_server_is_not_waited_for_forever() -> None:
    done = Event()

    def silent(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        done.wait(30)

    with ScriptedServer(silent) as server, Client(server.uri, timeout_seconds=0.2) as client:
        with pytest.raises(ServerUnreachable, match=r"was silent for 0\.2 s.*timeout_seconds"):
            client.references.get("main")
        with pytest.raises(OutcomeUnknown, match="unknown"):
            commit(client)
        assert server.connections == 2  # A slow read is not repeated, either.
        done.set()


def test_a_late_answer_is_not_taken_for_the_next_one() -> None:
    timed_out = Event()
    other = MAIN.replace(b"abab", b"cdcd")

    def script(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        if number == 1:
            assert timed_out.wait(30)
            connection.answer(other)
        else:
            connection.answer(MAIN)

    with ScriptedServer(script) as server, Client(server.uri, timeout_seconds=0.2) as client:
        with pytest.raises(ServerUnreachable):
            client.references.get("main")
        timed_out.set()
        assert client.references.get("main").hash == HASH


def test_a_port_without_a_server_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    client = Client(f"http://127.0.0.1:{port}")
    message = f"Nothing listens at http://127.0.0.1:{port}: check"
    for do in (lambda: client.references.get("main"), lambda: commit(client)):
        with pytest.raises(ServerUnreachable, match=message) as raised:
            do()
        assert not isinstance(raised.value, OutcomeUnknown)  # It was never sent.
        assert isinstance(raised.value, ServiceUnavailable)


def test_a_host_that_does_not_exist_is_named() -> None:
    with pytest.raises(ServerUnreachable, match=r"No host is called 'nowhere\.invalid'"):
        Client("http://nowhere.invalid:19120").config()


def test_a_server_of_another_protocol_is_recognized() -> None:
    def ssh(connection: AcceptedConnection, number: int) -> None:
        connection.send(b"SSH-2.0-OpenSSH_9.2\r\n")
        connection.read_request()

    message = r"does not respond in HTTP .*SSH-2\.0"
    with (
        ScriptedServer(ssh) as server,
        Client(server.uri) as client,
        pytest.raises(ServerUnreachable, match=message),
    ):
        client.config()


def test_threads_share_no_more_connections_than_allowed() -> None:
    with ScriptedServer(answer_main) as server, Client(server.uri, connections=3) as client:
        start = Barrier(12)

        def ask(_: int) -> str:
            start.wait()
            return {client.references.get("main").hash for _ in range(20)}.pop()

        with ThreadPoolExecutor(12) as threads:
            assert set(threads.map(ask, range(12))) == {HASH}
        assert 1 <= server.connections <= 3


def test_a_client_whose_connections_stay_busy_reports_it() -> None:
    received, done = Event(), Event()

    def script(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        received.set()
        while not done.wait(0.02):  # Not silent, but not done either.
            connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.answer(MAIN)

    with (
        ScriptedServer(script) as server,
        Client(server.uri, connections=1, timeout_seconds=0.5) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        slow = threads.submit(client.references.get, "main")
        assert received.wait(10)
        with pytest.raises(ServerUnreachable, match=r"All 1 connections .* were busy"):
            client.references.get("main")
        done.set()
        assert slow.result(10).hash == HASH


def test_closing_a_client_refuses_the_threads_that_wait_for_a_connection() -> None:
    received, done = Event(), Event()

    def script(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        received.set()
        assert done.wait(30)
        connection.answer(MAIN)

    with ScriptedServer(script) as server, ThreadPoolExecutor(2) as threads:
        client = Client(server.uri, connections=1, timeout_seconds=60)
        sent = threads.submit(client.references.get, "main")
        assert received.wait(10)
        waiting = threads.submit(client.references.get, "main")
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        client.close()
        with pytest.raises(ServerUnreachable, match="is closed"):
            waiting.result(10)
        done.set()
        assert sent.result(10).hash == HASH


def test_sending_may_take_longer_than_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_LONGEST_CONNECT_SECONDS", 0.2)

    def script(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        connection.answer(MAIN)
        Event().wait(0.6)  # Meanwhile the large request fills the buffers of both sides.
        connection.read_request()
        connection.answer(COMMITTED)

    large = CommitMeta(message="x" * 16_000_000)
    with ScriptedServer(script) as server, Client(server.uri, timeout_seconds=30) as client:
        head = client.references.get("main").hash
        result = client.commit("main", [Delete(ContentKey.of("t"))], large, expected=head)
        assert result.hash == HASH
        assert server.connections == 1


def test_a_closed_client_refuses_requests() -> None:
    with ScriptedServer(answer_main) as server:
        client = Client(server.uri)
        client.references.get("main")
        client.close()
        with pytest.raises(ServerUnreachable, match="is closed"):
            client.references.get("main")


def test_headers_go_with_every_request_and_into_no_message() -> None:
    requests: list[bytes] = []

    def script(connection: AcceptedConnection, number: int) -> None:
        requests.append(connection.read_request())
        connection.answer(b"no", "401 Unauthorized", "Connection: close")

    with (
        ScriptedServer(script) as server,
        Client(server.uri, token="s3cret", headers={"X-Who": "Änn"}) as client,
    ):
        with pytest.raises(UnexpectedAnswer, match="check the token") as raised:
            client.config()
        assert b"\r\nauthorization: Bearer s3cret\r\n" in requests[0]
        assert "\r\nx-who: Änn\r\n".encode("latin-1") in requests[0]
        assert b"\r\nnessie-client-spec: 2\r\n" in requests[0]
        assert requests[0].count(b"\r\nhost: ") == 1
        assert f"\r\nhost: 127.0.0.1:{server.port}\r\n".encode() in requests[0]
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


def test_every_connection_error_is_a_morag_error() -> None:
    for kind in (ServerUnreachable, OutcomeUnknown, UnexpectedAnswer):
        assert issubclass(kind, MoragError)
        assert kind.code and kind.status


def test_only_given_metadata_is_sent() -> None:
    requests: list[bytes] = []

    def script(connection: AcceptedConnection, number: int) -> None:
        requests.append(connection.read_request())
        connection.answer(COMMITTED)

    with ScriptedServer(script) as server, Client(server.uri) as client:
        meta = CommitMeta(message="m", authors=("Ann",))
        client.commit("a/b", [Delete(ContentKey.of("t"))], meta, expected=HASH)
    head, _, body = requests[0].partition(b"\r\n\r\n")
    assert head.startswith(f"POST /api/v2/trees/a%2Fb@{HASH}/history/commit HTTP/1.1".encode())
    assert body == (
        b'{"commitMeta":{"message":"m","authors":["Ann"]},'
        b'"operations":[{"type":"DELETE","key":{"elements":["t"]}}]}'
    )


def test_a_read_follows_a_redirect_on_the_same_server() -> None:
    paths: list[bytes] = []

    def script(connection: AcceptedConnection, number: int) -> None:
        while True:
            path = connection.read_request().split(b" ")[1]
            paths.append(path)
            if path.startswith(b"/new/"):
                connection.answer(MAIN)
            else:
                connection.answer(b"", "307 Temporary Redirect", f"Location: /new{path.decode()}")

    with ScriptedServer(script) as server, Client(server.uri) as client:
        assert client.references.get("main").hash == HASH
        assert paths == [b"/api/v2/trees/main", b"/new/api/v2/trees/main"]


def test_redirects_in_a_circle_end() -> None:
    def script(connection: AcceptedConnection, number: int) -> None:
        while True:
            path = connection.read_request().split(b" ")[1].decode()
            connection.answer(b"", "302 Found", f"Location: {path}")

    with (
        ScriptedServer(script) as server,
        Client(server.uri) as client,
        pytest.raises(
            UnexpectedAnswer, match="the server redirects more than 5 times, now to /api"
        ),
    ):
        client.config()


def test_neither_a_token_nor_a_write_follows_a_redirect_to_another_server() -> None:
    requests: list[bytes] = []

    def other(connection: AcceptedConnection, number: int) -> None:
        requests.append(connection.read_request())
        connection.answer(MAIN)

    with ScriptedServer(other) as elsewhere:

        def script(connection: AcceptedConnection, number: int) -> None:
            while True:
                path = connection.read_request().split(b" ")[1].decode()
                connection.answer(b"", "307 Temporary Redirect", f"Location: {elsewhere.uri}{path}")

        with ScriptedServer(script) as server, Client(server.uri, token="s3cret") as client:
            with pytest.raises(UnexpectedAnswer, match=f"redirects to {elsewhere.uri}"):
                client.references.get("main")
            with pytest.raises(UnexpectedAnswer, match=f"redirects to {elsewhere.uri}"):
                commit(client)
    assert requests == []


def test_a_write_is_not_redirected_on_the_same_server_either() -> None:
    requests: list[bytes] = []

    def script(connection: AcceptedConnection, number: int) -> None:
        while True:
            requests.append(connection.read_request())
            connection.answer(b"", "308 Permanent Redirect", "Location: /elsewhere")

    with (
        ScriptedServer(script) as server,
        Client(server.uri) as client,
        pytest.raises(UnexpectedAnswer, match="redirects to /elsewhere"),
    ):
        commit(client)
    assert len(requests) == 1


def test_a_proxy_gets_whole_urls_and_its_password() -> None:
    requests: list[bytes] = []

    def script(connection: AcceptedConnection, number: int) -> None:
        while True:
            requests.append(connection.read_request())
            connection.answer(MAIN)

    with ScriptedServer(script) as proxy:
        address = proxy.uri.replace("//", "//ann:s3cret@")
        with Client("http://catalog.invalid:19120", proxy=address) as client:
            assert client.references.get("main").hash == HASH
            assert "s3cret" not in repr(client)
    assert requests[0].startswith(
        b"GET http://catalog.invalid:19120/api/v2/trees/main HTTP/1.1\r\n"
    )
    assert b"\r\nhost: catalog.invalid:19120\r\n" in requests[0]
    assert b"\r\nproxy-authorization: Basic YW5uOnMzY3JldA==\r\n" in requests[0]


def test_https_goes_through_a_tunnel_of_the_proxy() -> None:
    requests: list[bytes] = []

    def script(connection: AcceptedConnection, number: int) -> None:
        requests.append(connection.read_request())
        connection.answer(b"", "403 Forbidden")

    with (
        ScriptedServer(script) as proxy,
        Client("https://catalog.invalid", proxy=proxy.uri) as client,
    ):
        message = (
            r"No connection to https://catalog\.invalid through the proxy 127\.0\.0\.1:\d+ .*403"
        )
        with pytest.raises(ServerUnreachable, match=message) as raised:
            commit(client)
        assert not isinstance(raised.value, OutcomeUnknown)  # It was never sent.
        assert str(raised.value).endswith(": check the proxy")
    assert requests[0].startswith(b"CONNECT catalog.invalid:443 HTTP/1.")


@pytest.mark.parametrize("proxy", ["socks5://host:1", "nothing", "http://a b"])
def test_an_invalid_proxy_is_refused(proxy: str) -> None:
    with pytest.raises(BadRequest, match="The proxy must be like"):
        Client("http://127.0.0.1", proxy=proxy)


def set_environment(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Set the variables about proxies, and no others."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_errors_name_the_variable_of_a_proxy(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    set_environment(monkeypatch, {variable: "ftp://ann:s3cret@p:1"})
    with pytest.raises(BadRequest, match=f"The proxy in {variable} must be like") as raised:
        Client("https://catalog.invalid")
    assert "s3cret" not in str(raised.value)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    set_environment(monkeypatch, {variable: f"http://127.0.0.1:{port}"})
    advice = f"check the proxy in {variable}, or add the host to NO_PROXY"
    with pytest.raises(ServerUnreachable, match=advice):
        Client("https://catalog.invalid").config()


@pytest.mark.parametrize(
    ("variables", "uri", "expected"),
    [
        ({}, "http://catalog", None),
        ({"HTTP_PROXY": "http://p:1"}, "http://catalog", "http://p:1"),
        ({"http_proxy": "http://p:1"}, "http://catalog", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, "https://catalog", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://catalog", "http://p:1"),
        ({"ALL_PROXY": "http://p:1"}, "https://catalog", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "other,catalog"}, "http://catalog", None),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": ".example"}, "http://a.example:1", None),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "*"}, "http://catalog", None),
        ({"HTTP_PROXY": "http://p:1"}, "http://127.0.0.1:19120", None),
        ({"HTTP_PROXY": "http://p:1"}, "http://localhost:19120", None),
        ({"HTTP_PROXY": "http://p:1"}, "http://[::1]:19120", None),
    ],
    ids=str,
)
def test_the_environment_names_the_proxy(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], uri: str, expected: str | None
) -> None:
    set_environment(monkeypatch, variables)
    proxy = proxy_from_environment(parse_server_uri(uri))
    assert (None if proxy is None else proxy.url) == expected


def test_nothing_loads_urllib3_before_a_client_is_made() -> None:
    code = "import sys, morag, morag.client; sys.exit('urllib3' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)

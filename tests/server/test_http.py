"""HTTP of real clients: kept connections, pipelined requests, pieces, malformed requests."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.server.conftest import LIMIT
from tests.server.raw_http import GET_MAIN, read_all, read_answer

if TYPE_CHECKING:
    from tests.server_process import Served

EMPTY = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
HOST = b"Host: localhost"
POST = b"POST /nope HTTP/1.1\r\n" + HOST + b"\r\n"
BRANCH = f'{{"type":"BRANCH","name":"main","hash":"{EMPTY}"}}'.encode()


def post(path: bytes, body: bytes, *headers: bytes) -> bytes:
    head = [b"POST " + path + b" HTTP/1.1", HOST, b"Content-Type: application/json", *headers]
    return b"\r\n".join([*head, b"Content-Length: %d" % len(body), b"", b""]) + body


def create(name: str, *headers: bytes) -> bytes:
    return post(f"/api/v2/trees?name={name}&type=BRANCH".encode(), BRANCH, *headers)


def chunked(body: bytes, *pieces: int) -> bytes:
    parts = []
    for piece in pieces:
        parts.append(b"%x;extension=1\r\n%b\r\n" % (len(body[:piece]), body[:piece]))
        body = body[piece:]
    return b"".join(parts) + b"%x\r\n%b\r\n0\r\nTrailer: ignored\r\n\r\n" % (len(body), body)


def test_a_connection_serves_many_requests(server: Served) -> None:
    with server.connect() as client:
        for _ in range(3):
            client.sendall(GET_MAIN)
            status, head, body = read_answer(client)
            assert status == 200
            assert b"connection: close" not in head
            assert b"\r\ndate: " in head
            assert json.loads(body)["reference"]["name"] == "main"


def test_pipelined_requests_are_answered_in_order(server: Served) -> None:
    """Reads are answered at once and changes by a thread, but in the order of the requests."""
    requests = []
    for number in range(20):
        requests += [create(f"ahead{number}"), f"GET /api/v2/trees/ahead{number}".encode()]
        requests[-1] += b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    requests[-1] = requests[-1].replace(b"Host", b"Connection: close\r\nHost")
    received = server.exchange(b"".join(requests))
    names = [part.split(b'"name":"')[1].split(b'"')[0] for part in received.split(b"HTTP/1.1 ")[1:]]
    assert names == [f"ahead{number}".encode() for number in range(20) for _ in range(2)]


def test_a_request_may_come_byte_by_byte(server: Served) -> None:
    sent = create("bytewise").replace(b"Host", b"Connection: close\r\nHost")
    with server.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in sent:
            client.sendall(bytes([byte]))
        assert read_all(client).startswith(b"HTTP/1.1 200")


def test_a_body_may_come_in_chunks(server: Served) -> None:
    head = create("chunked", b"Connection: close").split(b"Content-Length")[0]
    received = server.exchange(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(BRANCH, 3, 7))
    assert received.startswith(b"HTTP/1.1 200")
    assert b'"name":"chunked"' in received


def test_a_client_that_expects_100_continue_gets_it(server: Served) -> None:
    head, _, body = create("continued", b"Expect: 100-continue").partition(b"\r\n\r\n")
    with server.connect() as client:
        client.sendall(head + b"\r\n\r\n")
        assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert read_answer(client)[0] == 200


def test_an_upgrade_to_http_2_is_ignored(server: Served) -> None:
    """Java's client offers it, and sends its body in HTTP/1.1."""
    offer = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMA")
    sent = create("upgraded", *offer)
    with server.connect() as client:
        client.sendall(sent[:-5])
        client.sendall(sent[-5:])
        status, _, body = read_answer(client)
        assert status == 200
        assert b'"name":"upgraded"' in body
        client.sendall(GET_MAIN.replace(HOST, b"\r\n".join((HOST, *offer))))
        assert read_answer(client)[0] == 200
        client.sendall(GET_MAIN)
        assert read_answer(client)[0] == 200


def test_many_pipelined_upgrades_are_answered(server: Served) -> None:
    offering = GET_MAIN.replace(HOST, HOST + b"\r\nConnection: Upgrade\r\nUpgrade: h2c")
    last = GET_MAIN.replace(b"Host", b"Connection: close\r\nHost")
    received = server.exchange(3000 * offering + last)
    assert received.count(b"HTTP/1.1 200") == 3001
    assert "Traceback" not in server.errors()


def test_half_closed_connections_get_their_answer(server: Served) -> None:
    with server.connect() as client:
        client.sendall(create("half"))
        client.shutdown(socket.SHUT_WR)
        assert read_all(client).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.0\r\nConnection: keep-alive"])
def test_clients_of_http_1_0_are_answered_and_closed(server: Served, version: bytes) -> None:
    received = server.exchange(b"GET /api/v2/trees/main " + version + b"\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in received


def test_a_request_to_close_is_confirmed_and_followed(server: Served) -> None:
    received = server.exchange(GET_MAIN.replace(b"Host", b"Connection: close\r\nHost") + GET_MAIN)
    assert b"connection: close" in received
    assert received.count(b"HTTP/1.1") == 1


def test_whole_urls_are_accepted_as_by_a_proxy(server: Served) -> None:
    sent = b"GET http://localhost:1/api/v2/trees/main?fetch=MINIMAL HTTP/1.1\r\n"
    received = server.exchange(sent + b"Host: elsewhere\r\nConnection: close\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200")


def test_head_returns_the_length_and_no_body(server: Served) -> None:
    full = server.ask("GET", "/api/v2/trees/main")
    received = server.exchange(
        b"HEAD /api/v2/trees/main HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    )
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(full.body) in head
    assert body == b""


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (b"/api/v2/trees/ma%69n", 200),
        (b"/api/v2/trees/%", 400),
        (b"/api/v2/trees/%ff%fe", 400),
        (b"/api/v2/trees/main^1", 400),
        (b"/api/v2/trees/a%2Fb", 404),
    ],
)
def test_paths_reach_the_api_as_they_were_sent(server: Served, path: bytes, status: int) -> None:
    sent = GET_MAIN.replace(b"/api/v2/trees/main", path)
    received = server.exchange(sent.replace(HOST, HOST + b"\r\nConnection: close"))
    assert int(received.split()[1]) == status


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS to a server without it.
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /api/v2/trees/\xe2\x98\x83 HTTP/1.1\r\n\r\n",
        b"GET /a b HTTP/1.1\r\n\r\n",
        b"NONSENSE / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nBad header: x\r\n\r\n",
        POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        POST + b"X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n",
        POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        POST + b"Content-Length: 3, 3\r\n\r\nabc",
        POST + b"Content-Length: +3\r\n\r\nabc",
        POST + b"Content-Length: -3\r\n\r\nabc",
        POST + b"Content-Length: 99999999999999999999999\r\n\r\nabc",
        b"GET / HTTP/1.1\nHost: localhost\n\n",
        b"GET / HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\rX: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: \0\r\n\r\n",
        b"GET / HTTP/1.1\r\n Host: localhost\r\n\r\n",
        b"GET / HTTP/1.1 \r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.2\r\nHost: localhost\r\n\r\n",
    ],
)
def test_data_that_is_not_http_is_refused_and_the_connection_closed(
    server: Served, sent: bytes
) -> None:
    received = server.exchange(sent)
    assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"This is not HTTP" in received
    assert server.ask("GET", "/api/v2/trees/main").status == 200


OFFER = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"


@pytest.mark.parametrize("offer", [b"", OFFER], ids=["", "offering HTTP/2"])
@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"needs a Host header"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nhost: localhost\r\n\r\n", b"one Host header"),
        (b"GET / HTTP/1.0\r\nHost: localhost\r\nHost: elsewhere\r\n\r\n", b"one Host header"),
        (b"GET / HTTP/1.1\r\nHost: local host\r\n\r\n", b"Host must be a name"),
        (b"GET / HTTP/1.1\r\nHost: localhost/x\r\n\r\n", b"Host must be a name"),
        (b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", b"Only HTTP/1.1 and HTTP/1.0"),
        (b"GET / HTTP/0.9\r\nHost: localhost\r\n\r\n", b"Only HTTP/1.1 and HTTP/1.0"),
        (b"GET /\r\n\r\n", b"Only HTTP/1.1 and HTTP/1.0"),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", b"transfer coding"),
        (
            POST + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"transfer coding",
        ),
        (POST + b"Transfer-Encoding: identity\r\n\r\n", b"transfer coding"),
        (POST.replace(b"POST", b"GET") + b"Transfer-Encoding: gzip\r\n\r\n", b"transfer coding"),
        (
            b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.0 has no Transfer-Encoding",
        ),
    ],
)
def test_ambiguous_requests_are_refused(
    server: Served, sent: bytes, reason: bytes, offer: bytes
) -> None:
    """The connection is closed, too: it is unknown where the next request begins."""
    line, _, rest = sent.partition(b"\r\n")
    received = server.exchange(line + b"\r\n" + offer + rest + GET_MAIN)
    assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert reason in received
    assert received.count(b"HTTP/1.1 4") == received.count(b"content-length") == 1


def test_the_name_of_a_transfer_coding_is_case_insensitive(server: Served) -> None:
    sent = POST + b"Connection: close\r\nTransfer-Encoding:  CHUNKED \r\n\r\n0\r\n\r\n"
    assert server.exchange(sent).startswith(b"HTTP/1.1 404")


def test_requests_before_a_malformed_one_are_answered(server: Served) -> None:
    received = server.exchange(create("before") + b"NONSENSE\r\n\r\n")
    assert [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]] == [b"200", b"400"]


@pytest.mark.parametrize("target", [b"a:1", b"/", b"localhost"])
@pytest.mark.parametrize("host", [b"", HOST + b"\r\n"])
@pytest.mark.parametrize("offer", [b"", b"Connection: upgrade\r\nUpgrade: h2c\r\n"])
def test_connect_is_refused(server: Served, target: bytes, host: bytes, offer: bytes) -> None:
    """Also on a connection that has already sent a request."""
    sent = b"CONNECT " + target + b" HTTP/1.1\r\n" + host + offer + b"\r\n"
    with server.connect() as client:
        client.sendall(GET_MAIN)
        assert read_answer(client)[0] == 200
        client.sendall(sent + GET_MAIN)
        received = read_all(client)
    assert received.startswith(b"HTTP/1.1 405")
    assert received.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("pieces", [1, 4])
def test_a_too_large_head_is_refused(server: Served, pieces: int) -> None:
    with server.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(b"GET / HTTP/1.1\r\n")
        for number in range(pieces):
            client.sendall(f"X-{number}: {'x' * (10_000 // pieces)}\r\n".encode())
        client.sendall(b"\r\n")
        assert read_all(client).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("begun", [b"0\r\nX: ", b"0\r\n", b"1;x=", b"1\r\nx\r\n0\r\nX: "])
def test_too_large_trailers_and_extensions_are_refused(server: Served, begun: bytes) -> None:
    """The API ignores them, but the parser keeps them in memory."""
    with server.connect() as client:
        client.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n" + begun)
        with suppress(ConnectionError):  # The server may close while we are still sending.
            for _ in range(100):
                client.sendall(10 * b"X-Trailer: x\r\n" if begun == b"0\r\n" else 1000 * b"x")
        assert read_answer(client)[0] == 431


def test_a_body_of_many_chunks_is_not_taken_for_a_large_trailer(server: Served) -> None:
    head = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    received = server.exchange(head + 90_000 * b"1\r\nx\r\n" + b"0\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 404")


def test_a_body_beside_a_small_head_is_not_taken_for_a_large_head(server: Served) -> None:
    assert server.ask("POST", "/nope", b"x" * 50_000).status == 404


def test_a_too_large_content_length_is_refused(server: Served) -> None:
    """The request is refused before its body is sent, with an error of the API."""
    head = post(b"/api/v2/trees", b"").replace(b": 0\r\n", f": {LIMIT + 1}\r\n".encode())
    received = server.exchange(head)
    assert received.startswith(b"HTTP/1.1 413")
    assert json.loads(received.partition(b"\r\n\r\n")[2])["errorCode"] == "REQUEST_TOO_LARGE"
    expecting = head.replace(b"Host", b"Expect: 100-continue\r\nHost")
    assert server.exchange(expecting).startswith(b"HTTP/1.1 413")


def test_a_too_large_chunked_body_is_refused(server: Served) -> None:
    head = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    piece = b"%x\r\n%b\r\n" % (10_000, b"x" * 10_000)
    assert server.exchange(head + 11 * piece).startswith(b"HTTP/1.1 413")


def test_the_refusal_reaches_a_client_that_is_still_sending(server: Served) -> None:
    assert server.ask("POST", "/api/v2/trees", b"x" * 3_000_000).status == 413

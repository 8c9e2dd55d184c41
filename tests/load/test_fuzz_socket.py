"""Malformed requests: the server refuses them, stays alive, and keeps nothing of them."""

from __future__ import annotations

import gzip
import re
import socket
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server_process import Address

HANG_UP_SECONDS: Final = 20
RELEASE_SECONDS: Final = 20
EXAMPLES: Final = 400

_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n[a-z-]+: ")
_HOST: Final = b"Host: localhost\r\n"
_JSON: Final = _HOST + b"Content-Type: application/json\r\n"
_NO_ANCESTOR: Final = b"2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
_COMMIT: Final = b"POST /api/v2/trees/main@" + _NO_ANCESTOR + b"/history/commit HTTP/1.1\r\n"
_GET: Final = b"GET /api/v2/config HTTP/1.1\r\n" + _HOST + b"\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for this file; in the end it must hold no more resources than before."""
    with Served(tmp_path_factory.mktemp("fuzz"), quiet=True) as server:
        assert statuses(exchanged(server.address, _GET)) == [200]
        idle = server.resources()
        yield server
        assert server.becomes_idle(idle, RELEASE_SECONDS), server.resources()


def commit(body: bytes, headers: bytes = b"") -> bytes:
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    return _COMMIT + _JSON + headers + length + body


def chunked(chunks: bytes) -> bytes:
    return _COMMIT + _JSON + b"Transfer-Encoding: chunked\r\n\r\n" + chunks


def operations(content: bytes) -> bytes:
    put = b'{"type":"PUT","key":{"elements":["t"]},"content":' + content + b"}"
    return b'{"commitMeta":{"message":"m"},"operations":[' + put + b"]}"


def table(snapshot: bytes) -> bytes:
    return operations(
        b'{"type":"ICEBERG_TABLE","metadataLocation":"x","snapshotId":'
        + snapshot
        + b',"schemaId":0,"specId":0,"sortOrderId":0}'
    )


_PLAIN: Final = table(b"1")
_ZIPPED: Final = gzip.compress(_PLAIN)
_ZIP: Final = b"Content-Encoding: gzip\r\n"
_DEEP: Final = 100_000

REFUSED: Final = {
    # Request lines.
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "line ends only": b"\r\n" * 10_000 + b"nonsense\r\n\r\n",
    "a version of the future": b"GET / HTTP/9.9\r\n" + _HOST + b"\r\n",
    "an unknown method": b"BREW /pot HTTP/1.1\r\n" + _HOST + b"\r\n",
    "spaces in the path": b"GET /a b c HTTP/1.1\r\n" + _HOST + b"\r\n",
    "NUL in the path": b"GET /api/v2/trees/\x00 HTTP/1.1\r\n" + _HOST + b"\r\n",
    "an endless path": b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n" + _HOST + b"\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    # Headers.
    "a huge header": b"GET / HTTP/1.1\r\n" + _HOST + b"X: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + _HOST + b"X: a\r\n" * 100_000 + b"\r\n",
    "NUL in a header": b"GET / HTTP/1.1\r\n" + _HOST + b"X: \x00\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\n" + _HOST + b"nonsense\r\n\r\n",
    "a header of no name": b"GET / HTTP/1.1\r\n" + _HOST + b": a\r\n\r\n",
    # Lengths.
    "a negative length": _COMMIT + _JSON + b"Content-Length: -1\r\n\r\n" + _PLAIN,
    "two lengths": commit(_PLAIN, b"Content-Length: 3\r\n"),
    "a length in words": _COMMIT + _JSON + b"Content-Length: ten\r\n\r\n" + _PLAIN,
    "an endless length": _COMMIT + _JSON + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "a length beyond the limit": _COMMIT + _JSON + b"Content-Length: 999999999999\r\n\r\nx",
    "a length and chunks": commit(b"0\r\n\r\n", b"Transfer-Encoding: chunked\r\n"),
    # Chunks.
    "a chunk of no size": chunked(b"\r\n\r\n"),
    "a chunk of a negative size": chunked(b"-5\r\nhello\r\n0\r\n\r\n"),
    "a chunk of an endless size": chunked(b"f" * 40 + b"\r\nhello\r\n0\r\n\r\n"),
    "a chunk longer than it says": chunked(b"2\r\nhello\r\n0\r\n\r\n"),
    "an unknown encoding": _COMMIT + _JSON + b"Transfer-Encoding: rot13\r\n\r\n",
    # Bodies.
    "gzip cut short": commit(_ZIPPED[:-9], _ZIP),
    "gzip that is none": commit(_PLAIN, _ZIP),
    "gzip with a wrong sum": commit(_ZIPPED[:-8] + bytes(8), _ZIP),
    "gzip of a gigabyte of nothing": commit(gzip.compress(bytes(1 << 26)) * 16, _ZIP),
    "an unknown packing": commit(_PLAIN, b"Content-Encoding: br\r\n"),
    "no JSON": commit(b"\xff\xfe\x00"),
    "half of the JSON": commit(_PLAIN[:-10]),
    "text that is no UTF-8": commit(operations(b'{"type":"\xff\xfe\xc0\x80"}')),
    "half of a surrogate pair": commit(operations(b'{"type":"\\ud800"}')),
    "NUL in JSON": commit(_PLAIN.replace(b'"m"', b'"\x00"')),
    "a key with NUL": commit(_PLAIN.replace(b'"t"', b'"\\u0000"')),
    "deep lists": commit(b"[" * _DEEP + b"]" * _DEEP),
    "deep lists in a known place": commit(operations(b"[" * _DEEP + b"]" * _DEEP)),
    "deep objects": commit(b'{"operations":' * _DEEP + b"1" + b"}" * _DEEP),
    "deep objects in an unknown place": commit(
        _PLAIN[:-1] + b',"x":' + b'{"x":' * _DEEP + b"1" + b"}" * _DEEP + b"}"
    ),
    "deep lists that never end": commit(b"[" * _DEEP),
    "a giant number": commit(table(b"9" * 100_000)),
    "a giant exponent": commit(table(b"1e999999999")),
    "a number just too large": commit(table(b"9223372036854775808")),
    "a number that is none": commit(table(b"NaN")),
    "a million operations of nothing": commit(
        b'{"commitMeta":{"message":"m"},"operations":[' + b"{}," * 1_000_000 + b"{}]}"
    ),
    # Paths and queries.
    "a path of broken escapes": b"GET /api/v2/trees/%zz%/history HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a path of bytes": b"GET /api/v2/trees/%ff%fe HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a raw path of bytes": b"GET /api/v2/trees/\xff\xfe HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a way out": b"GET /../../../../etc/passwd HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a giant limit": b"GET /api/v2/trees?max-records="
    + b"9" * 5000
    + b" HTTP/1.1\r\n"
    + _HOST
    + b"\r\n",
    "a deep filter": b"GET /api/v2/trees?filter="
    + b"(" * 20_000
    + b" HTTP/1.1\r\n"
    + _HOST
    + b"\r\n",
    "a tunnel": b"CONNECT example.com:443 HTTP/1.1\r\n" + _HOST + b"\r\n",
}


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED.keys())
def test_malformed_requests_are_refused(server: Served, sent: bytes) -> None:
    answered = statuses(exchanged(server.address, sent))
    assert answered, "no answer to a malformed request"
    assert all(400 <= status < 500 for status in answered), answered
    check_alive(server)


UNFINISHED: Final = {
    "nothing": b"",
    "half a line": b"GET /api/v2/con",
    "half a head": b"GET /api/v2/config HTTP/1.1\r\nHost: local",
    "half a body": commit(_PLAIN)[:-10],
    "no body": _COMMIT + _JSON + b"Content-Length: 10\r\n\r\n",
    "half of the chunks": chunked(b"5\r\nhel"),
    "no last chunk": chunked(b"5\r\nhello\r\n"),
}


@pytest.mark.parametrize("sent", UNFINISHED.values(), ids=UNFINISHED.keys())
def test_unfinished_requests_are_dropped(server: Served, sent: bytes) -> None:
    answered = statuses(exchanged(server.address, sent))
    assert all(400 <= status < 500 for status in answered), answered
    check_alive(server)


def test_pipelined_requests_are_answered_in_order(server: Served) -> None:
    lost = _GET.replace(b"config", b"nothing")
    assert statuses(exchanged(server.address, (_GET + lost) * 50)) == [200, 404] * 50
    check_alive(server)


def test_after_a_malformed_request_no_other_is_answered(server: Served) -> None:
    """The server cannot know any more where the next request begins."""
    assert statuses(exchanged(server.address, _GET + b"nonsense\r\n\r\n" + _GET)) == [200, 400]
    check_alive(server)


def test_a_request_hidden_in_a_body_is_not_answered(server: Served) -> None:
    hidden = commit(_GET)
    assert statuses(exchanged(server.address, hidden + _GET)) == [400, 200]
    check_alive(server)


def test_a_thousand_connections_leave_nothing_behind(server: Served) -> None:
    idle = server.resources()
    for number in range(1000):
        with socket.create_connection(server.address) as connection:
            connection.sendall(_GET[: number % len(_GET)])
    assert server.becomes_idle(idle, RELEASE_SECONDS), server.resources()
    check_alive(server)


GOOD: Final = (
    _GET,
    commit(_PLAIN),
    commit(_ZIPPED, _ZIP),
    chunked(b"%x\r\n%s\r\n0\r\n\r\n" % (len(_PLAIN), _PLAIN)),
    b"GET /api/v2/trees/main/entries?filter=entry.name%3D%3D'a'&max-records=3 HTTP/1.1\r\n"
    + _HOST
    + b"Accept-Encoding: gzip\r\nNessie-Client-Spec: 2\r\n\r\n",
    b"GET /api/v2/trees/main@"
    + _NO_ANCESTOR
    + b"~1/history?fetch=ALL HTTP/1.1\r\n"
    + _HOST
    + b"\r\n",
    b"GET /api/v1/diffs/main...main HTTP/1.1\r\n" + _HOST + b"Connection: close\r\n\r\n",
    b"DELETE /api/v1/trees/branch/x?expectedHash="
    + _NO_ANCESTOR
    + b" HTTP/1.1\r\n"
    + _HOST
    + b"\r\n",
    b"OPTIONS * HTTP/1.1\r\n" + _HOST + b"\r\n",
    b"HEAD /api/v2/trees/-/contents/a.b HTTP/1.0\r\nExpect: 100-continue\r\n\r\n",
)
_TELLING: Final = st.sampled_from(
    [b"\x00", b"\r", b"\n", b"\r\n\r\n", b" ", b"%", b"%00", b"\xff", b":", b"{", b"[", b'"', b"-"]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Correct requests with some bytes lost, repeated or changed."""
    data = b"".join(draw(st.lists(st.sampled_from(GOOD), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 20)))
        new = draw(_TELLING | st.binary(max_size=20) | st.just(data[start:end] * 2))
        data = data[:start] + new + data[end:]
    return data


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    report_multiple_bugs=False,
    phases=(
        Phase.reuse,
        Phase.generate,
    ),  # Shrinking an input that makes the server hang would take hours.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(sent=damaged() | st.binary(max_size=500))
def test_after_any_input_the_next_request_is_answered(server: Served, sent: bytes) -> None:
    note(f"sent: {sent!r}")
    answered = statuses(exchanged(server.address, sent))
    assert all(status < 500 for status in answered), answered
    check_alive(server)


def check_alive(server: Served) -> None:
    assert server.is_alive
    assert statuses(exchanged(server.address, _GET)) == [200]


def exchanged(address: Address, sent: bytes) -> bytes:
    """Send the bytes, half-close, and read until the server closes."""
    answer = b""
    with socket.create_connection(address, HANG_UP_SECONDS) as connection:
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass  # The server has closed; its answer can still be read.
        try:
            while received := connection.recv(1 << 16):
                answer += received
        except ConnectionError:
            pass
    return answer


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in _STATUS.findall(answer) if found != b"100"]

"""Compressed requests and answers, within limits."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morag.api.http import Request, Response
from morag.errors import BadRequest, RequestTooLarge
from morag.server.compression import compressed, decompressed, wants_gzip
from tests.server.conftest import LIMIT
from tests.server_process import Served

if TYPE_CHECKING:
    from pathlib import Path

EMPTY = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
BRANCH = f'{{"type":"BRANCH","name":"main","hash":"{EMPTY}"}}'.encode()
JSON = {"Content-Type": "application/json"}
GZIP = JSON | {"Content-Encoding": "gzip"}


def create(server: Served, name: str, body: bytes, headers: dict[str, str]) -> int:
    return server.ask("POST", f"/api/v2/trees?name={name}&type=BRANCH", body, headers).status


def test_requests_may_be_compressed(server: Served) -> None:
    assert create(server, "packed", gzip.compress(BRANCH), GZIP) == 200
    assert (
        create(server, "packed2", gzip.compress(BRANCH), JSON | {"Content-Encoding": "GZip"}) == 200
    )
    assert create(server, "plain", BRANCH, JSON | {"Content-Encoding": "identity"}) == 200


def test_large_compressed_requests_are_decompressed_in_a_thread(server: Served) -> None:
    spaces = gzip.compress(BRANCH + b" " * 5000, 0)
    assert len(spaces) > 4096
    assert create(server, "packed3", spaces, GZIP) == 200


@pytest.mark.parametrize("body", [b"nonsense", gzip.compress(BRANCH)[:-9], BRANCH])
def test_bodies_that_are_no_gzip_are_refused_over_http(server: Served, body: bytes) -> None:
    answer = server.ask("POST", "/api/v2/trees?name=x&type=BRANCH", body, GZIP)
    assert answer.status == 400
    assert b"not valid gzip" in answer.body
    assert b'"errorCode":"BAD_REQUEST"' in answer.body


@pytest.mark.parametrize("encoding", ["deflate", "br", "gzip, gzip"])
def test_other_encodings_are_refused(server: Served, encoding: str) -> None:
    assert create(server, "x", zlib.compress(BRANCH), JSON | {"Content-Encoding": encoding}) == 415


def test_a_gzip_bomb_is_refused(server: Served) -> None:
    before = server.resident_bytes()
    bomb = gzip.compress(bytes(90_000_000))
    assert len(bomb) < LIMIT
    answer = server.ask("POST", "/api/v2/trees?name=x&type=BRANCH", bomb, GZIP)
    assert answer.status == 413
    assert b"larger than 100000 bytes when decompressed" in answer.body
    assert server.resident_bytes() - before < 20_000_000


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=3), st.integers(0, 700))
def test_decompression_returns_everything_or_refuses(members: list[bytes], limit: int) -> None:
    """A gzip file may have several members."""
    plain = b"".join(members)
    body = b"".join(gzip.compress(member) for member in members)
    if len(plain) > limit:
        with pytest.raises(RequestTooLarge):
            decompressed(body, "gzip", limit)
    else:
        assert decompressed(body, "gzip", limit) == plain


def test_a_file_of_countless_members_is_refused() -> None:
    assert decompressed(64 * gzip.compress(b"x"), "gzip", 1000) == 64 * b"x"
    with pytest.raises(BadRequest, match="more than 64 gzip members"):
        decompressed(65 * gzip.compress(b"x"), "gzip", 1000)


@given(st.binary(min_size=1, max_size=100))
def test_bytes_that_are_no_gzip_are_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        decompressed(body, "gzip", 1000)


@given(st.binary(max_size=5000))
def test_a_compressed_body_can_be_decompressed(body: bytes) -> None:
    assert gzip.decompress(compressed(Response(200, body)).body) == body


@pytest.mark.parametrize(
    ("accepted", "wanted"),
    [
        (None, False),
        (b"", False),
        (b"gzip", True),
        (b"deflate, GZIP;q=0.5, br", True),
        (b"gzip;q=0", False),
        (b"gzip; q=0.0", False),
        (b"br, deflate", False),
        (b"x-gzip", True),
        (b"notgzip", False),
    ],
)
def test_accept_encoding_decides_whether_to_compress(accepted: bytes | None, wanted: bool) -> None:
    headers = () if accepted is None else ((b"accept-encoding", accepted),)
    assert wants_gzip(Request("GET", "/", headers=headers)) is wanted


@pytest.mark.parametrize("names", [60, 1500])
def test_large_answers_are_compressed_for_clients_that_accept_it(
    tmp_path: Path, names: int
) -> None:
    """The server compresses up to 64 kB on the event loop, more in a thread."""
    keys = [{"elements": [f"n{number}"]} for number in range(names)]
    puts = [{"type": "PUT", "key": key, "content": {"type": "NAMESPACE"} | key} for key in keys]
    body = json.dumps({"commitMeta": {"message": "m"}, "operations": puts}).encode()
    with Served(tmp_path, "--gzip-min-bytes", "4096") as server:
        path = f"/api/v2/trees/main@{EMPTY}/history/commit"
        assert server.ask("POST", path, gzip.compress(body), GZIP).status == 200
        plain = server.ask("GET", "/api/v2/trees/main/entries", headers={"Accept-Encoding": "br"})
        assert "content-encoding" not in plain.headers
        assert len(plain.body) > 4096
        both = [
            server.ask(method, "/api/v2/trees/main/entries", headers={"Accept-Encoding": "gzip"})
            for method in ("GET", "HEAD")
        ]
        assert gzip.decompress(both[0].body) == plain.body
        for answer in both:
            assert answer.headers["content-encoding"] == "gzip"
            assert answer.headers["vary"] == "accept-encoding"
        small = server.ask("GET", "/api/v2/trees/main", headers={"Accept-Encoding": "gzip"})
        assert "content-encoding" not in small.headers

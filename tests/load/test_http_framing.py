"""The driver finds the end of a response, however the network cuts it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morag.client.errors import ServerUnreachable
from morag.load.http_framing import Incoming, body_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
CUTS = st.lists(st.integers(1, 40), min_size=1)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """The data in pieces of these sizes, in turn."""
    pieces: list[bytes] = []
    while data:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def with_length(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def in_chunks(body: bytes, sizes: list[int]) -> bytes:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in cut(body, sizes))
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + chunks + b"0\r\n\r\n"


@given(st.lists(st.tuples(TEXTS, st.booleans()), min_size=1, max_size=3), CUTS, CUTS)
def test_responses_are_whole_however_they_arrive(
    sent: list[tuple[str, bool]], chunks: list[int], reads: list[int]
) -> None:
    incoming = Incoming()
    for text, chunked in sent:
        body = json.dumps(text).encode()
        response = in_chunks(body, chunks) if chunked else with_length(body)
        *first, last = cut(response, reads)
        assert [incoming.add(piece) for piece in first] == [None] * len(first)
        assert incoming.add(last) == response
        assert body_of(response) == body


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        with_length(b"{}") + b"{}",
    ],
    ids=["without a length", "with more bytes than its length"],
)
def test_a_response_without_a_clear_end_is_refused(response: bytes) -> None:
    with pytest.raises(ServerUnreachable):
        Incoming().add(response)

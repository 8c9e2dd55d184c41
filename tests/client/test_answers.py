"""Answers that are not what was asked for."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from morag import (
    BadRequest,
    Conflict,
    ConflictType,
    ContentKey,
    ContentNotFound,
    MoragError,
    ReferenceConflict,
    RepositoryCorrupt,
)
from morag.client import Client, NotOffered, UnexpectedAnswer
from morag.errors import BY_CODE, AboutKey
from tests.client.servers import Scripted, Talk

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = ContentKey.of("a", "b")


def answered(
    body: bytes,
    status: str = "200 OK",
    *headers: str,
    ask: Callable[[Client], object] = Client.config,
) -> object:
    """What a client makes of the one answer that it gets."""

    def script(talk: Talk, number: int) -> None:
        talk.hear()
        talk.answer(body, status, *headers)

    with Scripted(script) as server, Client(server.uri) as client:
        return ask(client)


def error(code: str, status: str = "400 Bad Request", **more: Any) -> bytes:
    number, _, reason = status.partition(" ")
    sent = {"status": int(number), "reason": reason, "message": "no", "errorCode": code, **more}
    return json.dumps({**sent, "serverStackTrace": None}).encode()


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_code_is_raised_as_its_class(code: str) -> None:
    kind = BY_CODE[code]
    with pytest.raises(kind, match=r"^no$") as raised:
        answered(error(code), f"{kind.status} Whatever")
    assert type(raised.value) is kind


def test_a_conflict_carries_its_details() -> None:
    conflicts = [
        {"conflictType": "KEY_EXISTS", "key": {"elements": ["a", "b"]}, "message": "exists"},
        {"conflictType": "UNEXPECTED_HASH", "key": None, "message": "moved"},
        {"conflictType": "OF_THE_FUTURE", "message": "who knows"},
    ]
    details = {"type": "REFERENCE_CONFLICTS", "conflicts": conflicts}
    with pytest.raises(ReferenceConflict) as raised:
        answered(error("REFERENCE_CONFLICT", errorDetails=details), "409 Conflict")
    assert raised.value.conflicts == (
        Conflict(ConflictType.KEY_EXISTS, KEY, "exists"),
        Conflict(ConflictType.UNEXPECTED_HASH, None, "moved"),
        Conflict(ConflictType.UNKNOWN, None, "who knows"),
    )


@pytest.mark.parametrize(
    "code", sorted(code for code, kind in BY_CODE.items() if issubclass(kind, AboutKey))
)
def test_an_error_about_a_key_carries_it(code: str) -> None:
    details = {"type": "CONTENT_KEY", "contentKey": {"elements": ["a", "b"]}}
    with pytest.raises(AboutKey) as raised:
        answered(error(code, errorDetails=details), "404 Not Found")
    assert raised.value.key == KEY


@pytest.mark.parametrize("details", [None, {}, [], "x", {"contentKey": 1}, {"conflicts": [1]}])
def test_details_that_cannot_be_read_are_left_out(details: object) -> None:
    for code in ("CONTENT_NOT_FOUND", "REFERENCE_CONFLICT"):
        with pytest.raises(MoragError, match=r"^no$") as raised:
            answered(error(code, errorDetails=details), "404 Not Found")
        assert type(raised.value) is BY_CODE[code]
        assert not getattr(raised.value, "key", None)


def test_a_fault_of_the_server_is_not_taken_for_a_broken_repository() -> None:
    with pytest.raises(UnexpectedAnswer, match=r"GET http://\S+/config answered 500: no") as raised:
        answered(error("UNKNOWN"), "500 Internal Server Error")
    assert not isinstance(raised.value, RepositoryCorrupt)
    assert (raised.value.http_status, raised.value.server_code) == (500, "UNKNOWN")


def test_a_code_that_we_do_not_know_is_told() -> None:
    with pytest.raises(UnexpectedAnswer, match="no") as raised:
        answered(error("OF_THE_FUTURE"), "418 I'm a teapot")
    assert (raised.value.http_status, raised.value.server_code) == (418, "OF_THE_FUTURE")


@pytest.mark.parametrize("body", [b"", b"<html>no</html>", b"\xff\xfe", b"[]", b"{}", b"null"])
def test_an_error_without_a_body_that_we_know_tells_what_was_asked(body: bytes) -> None:
    with pytest.raises(UnexpectedAnswer) as raised:
        answered(body, "404 Not Found")
    assert (raised.value.http_status, raised.value.method) == (404, "GET")
    assert raised.value.url.endswith("/api/v2/config")
    assert "check the path of the server's URI" in str(raised.value)


def test_a_gateway_that_gives_up_on_a_write_leaves_its_outcome_unknown() -> None:
    def delete(client: Client) -> object:
        return client.references.delete("b", "ab" * 32)

    with pytest.raises(UnexpectedAnswer, match="Whether the change was made is unknown"):
        answered(b"<html>", "504 Gateway Timeout", ask=delete)
    with pytest.raises(UnexpectedAnswer) as raised:
        answered(b"<html>", "504 Gateway Timeout")
    assert "unknown" not in str(raised.value)


def test_a_redirect_is_told_and_not_followed() -> None:
    with pytest.raises(UnexpectedAnswer, match=r"points to https://elsewhere/api"):
        answered(b"", "301 Moved Permanently", "Location: https://elsewhere/api")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"defaultBranch":1}', b"\xff"])
def test_a_success_that_cannot_be_read_is_told(body: bytes) -> None:
    with pytest.raises(UnexpectedAnswer, match=r"answered 200: .* does not know"):
        answered(body)


def test_a_content_type_that_we_do_not_know_is_told() -> None:
    body = b'{"content":{"type":"PAIMON_TABLE","id":"1"}}'
    with pytest.raises(UnexpectedAnswer, match="PAIMON_TABLE"):
        answered(body, ask=lambda client: client.contents.get("main", KEY))


def test_fields_that_we_do_not_know_do_not_hurt() -> None:
    body = b'{"defaultBranch":"trunk","maxSupportedApiVersion":3,"new":{"x":[1]}}'
    config = answered(body)
    assert config == answered(b'{"defaultBranch":"trunk","maxSupportedApiVersion":3}')


def test_more_without_a_place_to_go_on_is_told() -> None:
    body = b'{"references":[],"hasMore":true,"token":null}'
    with pytest.raises(UnexpectedAnswer, match="there is more, but not where"):
        answered(body, ask=lambda client: list(client.references.list()))


def test_a_compressed_answer_is_decompressed() -> None:
    body = b'{"defaultBranch":"trunk","maxSupportedApiVersion":2}'
    assert answered(gzip.compress(body), "200 OK", "Content-Encoding: gzip") == answered(body)
    with pytest.raises(ContentNotFound, match=r"^no$"):
        packed = gzip.compress(error("CONTENT_NOT_FOUND"))
        answered(packed, "404 Not Found", "content-encoding: GZIP")


@pytest.mark.parametrize("coding", ["gzip", "br"])
def test_an_answer_that_cannot_be_decompressed_is_told(coding: str) -> None:
    for body in (b"", b"{}", gzip.compress(b"x" * 99)[:-5]):
        with pytest.raises(UnexpectedAnswer):
            answered(body, "200 OK", f"Content-Encoding: {coding}")


def test_deeply_nested_nonsense_is_told() -> None:
    body = b'{"x":' + b"[" * 100_000
    with pytest.raises(UnexpectedAnswer):
        answered(body)
    with pytest.raises(UnexpectedAnswer):
        answered(body, "500 Internal Server Error")


def test_an_extra_that_a_server_does_not_have_is_told() -> None:
    def moves(client: Client) -> object:
        return client.references.moves()

    with pytest.raises(NotOffered, match="keeps no ref-log"):
        answered(b"", "404 Not Found", ask=moves)
    with pytest.raises(BadRequest):
        answered(error("BAD_REQUEST"), "400 Bad Request", ask=moves)

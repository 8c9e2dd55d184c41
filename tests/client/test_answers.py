"""Error answers and unreadable answers, and the exceptions that the client raises for them."""

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
from morag.client import Client, NotOffered, OutcomeUnknown, UnexpectedAnswer
from morag.errors import BY_CODE, AboutKey
from tests.client.scripted_server import AcceptedConnection, ScriptedServer, commit

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = ContentKey.of("a", "b")


def answered(
    body: bytes,
    status: str = "200 OK",
    *headers: str,
    ask: Callable[[Client], object] = Client.config,
) -> object:
    """The result of a client whose server gives this one answer."""

    def script(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        connection.answer(body, status, *headers)

    with ScriptedServer(script) as server, Client(server.uri) as client:
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


def test_an_unknown_error_code_is_reported() -> None:
    with pytest.raises(UnexpectedAnswer, match="no") as raised:
        answered(error("OF_THE_FUTURE"), "418 I'm a teapot")
    assert (raised.value.http_status, raised.value.server_code) == (418, "OF_THE_FUTURE")


@pytest.mark.parametrize("body", [b"", b"<html>no</html>", b"\xff\xfe", b"[]", b"{}", b"null"])
def test_an_error_without_a_readable_body_names_the_request(body: bytes) -> None:
    with pytest.raises(UnexpectedAnswer) as raised:
        answered(body, "404 Not Found")
    assert (raised.value.http_status, raised.value.method) == (404, "GET")
    assert raised.value.url.endswith("/api/v2/config")
    assert "check the path of the server's URI" in str(raised.value)


@pytest.mark.parametrize(
    ("body", "status", "headers"),
    [
        (b"<html>", "200 OK", ()),
        (b"{}", "200 OK", ()),
        (b"{}", "200 OK", ("Content-Encoding: br",)),
        (b"", "204 No Content", ()),
        (error("UNKNOWN"), "500 Internal Server Error", ()),
        (b"<html>", "502 Bad Gateway", ()),
        (b"", "503 Service Unavailable", ()),
        (b"<html>", "504 Gateway Timeout", ()),
    ],
    ids=str,
)
def test_an_unexpected_answer_leaves_the_outcome_of_a_write_unknown(
    body: bytes, status: str, headers: tuple[str, ...]
) -> None:
    with pytest.raises(OutcomeUnknown, match="It is unknown whether the change was made") as raised:
        answered(body, status, *headers, ask=commit)
    assert isinstance(raised.value, UnexpectedAnswer)
    assert raised.value.http_status == int(status[:3])
    with pytest.raises(UnexpectedAnswer) as read:
        answered(body, status, *headers)
    assert not isinstance(read.value, OutcomeUnknown)
    assert "unknown" not in str(read.value)


@pytest.mark.parametrize("status", ["307 Temporary Redirect", "403 Forbidden", "413 Too Large"])
def test_a_refused_write_has_a_known_outcome(status: str) -> None:
    with pytest.raises(UnexpectedAnswer) as raised:
        answered(b"<html>", status, ask=commit)
    assert not isinstance(raised.value, OutcomeUnknown)


def test_a_login_page_is_shown() -> None:
    message = (
        r"answered 200: this is not a response of the API \(the response has text/html: '<html>"
    )
    with pytest.raises(UnexpectedAnswer, match=message):
        answered(b"<html>" + b"x" * 1000, "200 OK", "Content-Type: text/html; charset=utf-8")


def test_missing_credentials_are_reported() -> None:
    with pytest.raises(UnexpectedAnswer, match=r"pass a token \(the response has no body\)$"):
        answered(b"", "401 Unauthorized")


def test_a_redirect_without_an_address_is_reported() -> None:
    with pytest.raises(UnexpectedAnswer, match="redirects, but to no address: check the server's"):
        answered(b"", "302 Found")


def test_a_redirect_to_another_server_is_not_followed() -> None:
    with pytest.raises(
        UnexpectedAnswer, match=r"redirects to https://elsewhere/api: .* only of GET"
    ):
        answered(b"", "301 Moved Permanently", "Location: https://elsewhere/api")


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"defaultBranch":1}'])
def test_a_success_with_unknown_json_is_reported(body: bytes) -> None:
    with pytest.raises(UnexpectedAnswer, match=r"answered 200: .* does not know"):
        answered(body)


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff"])
def test_a_success_without_json_is_reported(body: bytes) -> None:
    with pytest.raises(UnexpectedAnswer, match=r"answered 200: this is not a response of the API"):
        answered(body)


def test_an_unknown_content_type_is_reported() -> None:
    body = b'{"content":{"type":"PAIMON_TABLE","id":"1"}}'
    with pytest.raises(UnexpectedAnswer, match="PAIMON_TABLE"):
        answered(body, ask=lambda client: client.contents.get("main", KEY))


def test_unknown_fields_are_ignored() -> None:
    body = b'{"defaultBranch":"trunk","maxSupportedApiVersion":3,"new":{"x":[1]}}'
    config = answered(body)
    assert config == answered(b'{"defaultBranch":"trunk","maxSupportedApiVersion":3}')


def test_a_page_that_lacks_the_token_of_the_next_page_is_reported() -> None:
    body = b'{"references":[],"hasMore":true,"token":null}'
    with pytest.raises(UnexpectedAnswer, match="has_more is true, but there is no token"):
        answered(body, ask=lambda client: list(client.references.list()))


def test_a_compressed_answer_is_decompressed() -> None:
    body = b'{"defaultBranch":"trunk","maxSupportedApiVersion":2}'
    assert answered(gzip.compress(body), "200 OK", "Content-Encoding: gzip") == answered(body)
    with pytest.raises(ContentNotFound, match=r"^no$"):
        packed = gzip.compress(error("CONTENT_NOT_FOUND"))
        answered(packed, "404 Not Found", "content-encoding: GZIP")


@pytest.mark.parametrize("coding", ["gzip", "br"])
def test_an_answer_that_cannot_be_decompressed_is_reported(coding: str) -> None:
    for body in (b"", b"{}", gzip.compress(b"x" * 99)[:-5]):
        with pytest.raises(UnexpectedAnswer):
            answered(body, "200 OK", f"Content-Encoding: {coding}")


def test_deeply_nested_json_is_reported() -> None:
    body = b'{"x":' + b"[" * 100_000
    with pytest.raises(UnexpectedAnswer):
        answered(body)
    with pytest.raises(UnexpectedAnswer):
        answered(body, "500 Internal Server Error")


def test_a_missing_extension_of_the_server_is_reported() -> None:
    def moves(client: Client) -> object:
        return client.references.moves()

    with pytest.raises(NotOffered, match="keeps no ref-log"):
        answered(b"", "404 Not Found", ask=moves)
    with pytest.raises(BadRequest):
        answered(error("BAD_REQUEST"), "400 Bad Request", ask=moves)

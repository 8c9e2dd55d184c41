"""A row of the tables excuses what it names, and nothing beside it. Needs no server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.original.differential.canonical import SEVERAL_CONFLICTS, Answer
from tests.original.differential.known import (
    BAD_INPUT,
    CONFLICT_ORDER,
    LAST_PAGE,
    TRANSPLANTED,
    UNREAD,
    decided,
    fault,
    owed,
)
from tests.original.differential.requests import Request

if TYPE_CHECKING:
    from tests.original.differential.symbols import Json

COMMIT = Request("POST", "/api/v2/trees/main@$H1/history/commit", text="{}")
LOG = Request("GET", "/api/v2/trees/main/history", (("limit-hash", "$H1"),))


def answer(status: int, body: Json = None) -> Answer:
    return Answer(status, {}, b"" if body is None else json.dumps(body).encode())


def error(status: int, message: str, code: str = "BAD_REQUEST") -> Answer:
    return answer(status, {"errorCode": code, "message": message})


def conflict(message: str) -> Answer:
    return error(409, message, "REFERENCE_CONFLICT")


def transplant(hashes: int, *, dry: bool) -> Request:
    request = Request("POST", "/api/v2/trees/main@$H1/history/transplant")
    names = [f"$H{i}" for i in range(hashes)]
    return request.with_json({"hashesToTransplant": names, "isDryRun": dry})


def test_a_500_is_excused_if_morag_says_what_is_wrong() -> None:
    broken = error(500, "java.lang.NullPointerException", "UNKNOWN")
    assert fault(broken, error(400, "wrong")) == BAD_INPUT
    assert fault(broken, error(400, "")) is None
    assert fault(broken, error(409, "wrong", "REFERENCE_CONFLICT")) is None
    assert fault(broken, broken) is None
    assert fault(broken, answer(200, {})) is None
    assert fault(error(400, "wrong"), error(400, "wrong")) is None


@pytest.mark.parametrize(("hashes", "dry"), [(2, False), (2, True), (3, True)])
def test_conflicts_of_several_transplanted_commits_may_differ(hashes: int, dry: bool) -> None:
    asked = transplant(hashes, dry=dry)
    assert decided(asked, conflict("a"), conflict("b")) == TRANSPLANTED
    assert decided(asked, conflict("a"), error(400, "b")) is None
    assert decided(asked, conflict("a"), error(404, "b", "REFERENCE_NOT_FOUND")) is None


def test_those_of_one_commit_may_not_and_nothing_may_be_written() -> None:
    assert decided(transplant(1, dry=False), conflict("a"), conflict("b")) is None
    assert decided(transplant(1, dry=True), conflict("a"), answer(200, {})) is None
    assert decided(transplant(2, dry=False), conflict("a"), answer(200, {})) is None
    assert decided(transplant(2, dry=False), answer(200, {}), answer(200, {})) is None
    assert decided(COMMIT, conflict("a"), conflict("b")) is None


def test_conflicts_in_another_order_are_the_same_conflicts() -> None:
    one, other = conflict(f"{SEVERAL_CONFLICTS}a, b."), conflict(f"{SEVERAL_CONFLICTS}b, a.")
    assert owed(COMMIT, one, other, ["/message: …"]) == CONFLICT_ORDER
    third = conflict(f"{SEVERAL_CONFLICTS}b, c.")
    assert owed(COMMIT, one, third, ["/message: …"]) is None


def test_a_last_page_differs_in_its_token_only() -> None:
    page = answer(200, {"logEntries": []})
    assert owed(LOG, page, page, ["/token: x", "/hasMore: y"]) == LAST_PAGE
    assert owed(LOG, page, page, ["/token: x", "/logEntries: y"]) is None
    assert owed(Request("GET", LOG.path), page, page, ["/token: x"]) is None


def test_a_body_that_only_the_original_takes_is_excused_unless_it_writes() -> None:
    unread = error(400, "The request body cannot be read: x")
    assert owed(COMMIT, conflict("a"), unread, ["status: …"]) == UNREAD
    assert owed(COMMIT, answer(200, {}), unread, ["status: …"]) is None
    assert owed(COMMIT, unread, answer(200, {}), ["status: …"]) is None

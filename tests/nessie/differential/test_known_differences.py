"""A known difference excuses exactly what it names. Needs no server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.nessie.differential.comparison import Answer
from tests.nessie.differential.known_differences import (
    BAD_INPUT,
    LAST_PAGE,
    MEDIA,
    SPANNED,
    TOKEN_BOUNDS,
    TRANSPLANTED,
    UNREAD,
    decided,
    fault,
    nothing_filtered,
)
from tests.nessie.differential.requests import Request

if TYPE_CHECKING:
    from tests.nessie.differential.symbols import Json

COMMIT = Request("POST", "/api/v2/trees/main@$H1/history/commit", text="{}")
SOME = ["status: …"]
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


def test_a_500_of_nessie_is_excused_if_morag_names_the_mistake() -> None:
    broken = error(500, "java.lang.NullPointerException", "UNKNOWN")
    assert fault(broken, error(400, "wrong")) == BAD_INPUT
    assert fault(broken, error(400, "")) is None
    assert fault(broken, error(409, "wrong", "REFERENCE_CONFLICT")) is None
    assert fault(broken, broken) is None
    assert fault(broken, answer(200, {})) is None
    assert fault(error(400, "wrong"), error(400, "wrong")) is None


@pytest.mark.parametrize(("hashes", "dry"), [(2, False), (2, True), (3, True)])
def test_conflicts_of_several_transplanted_commits_may_differ(hashes: int, dry: bool) -> None:
    request = transplant(hashes, dry=dry)
    assert decided(request, conflict("a"), conflict("b"), SOME) == TRANSPLANTED
    assert decided(request, conflict("a"), error(400, "b"), SOME) is None
    assert decided(request, conflict("a"), error(404, "b", "REFERENCE_NOT_FOUND"), SOME) is None


def test_conflicts_of_one_commit_may_not_differ_and_nothing_may_be_written() -> None:
    assert decided(transplant(1, dry=False), conflict("a"), conflict("b"), SOME) is None
    assert decided(transplant(1, dry=True), conflict("a"), answer(200, {}), SOME) is None
    assert decided(transplant(2, dry=False), conflict("a"), answer(200, {}), SOME) is None
    assert decided(transplant(2, dry=False), answer(200, {}), answer(200, {}), SOME) is None
    assert decided(COMMIT, conflict("a"), conflict("b"), SOME) is None


def test_a_last_page_differs_in_its_token_only() -> None:
    page = answer(200, {"logEntries": []})
    more = ["/token: null != x", "/hasMore: false != true"]
    assert decided(LOG, page, page, more) == LAST_PAGE
    assert decided(LOG, page, page, ["/token: x != null", "/hasMore: true != false"]) is None
    assert decided(LOG, page, page, [*more, "/logEntries: y"]) is None
    assert decided(Request("GET", LOG.path), page, page, more) is None


@pytest.mark.parametrize("place", ["commitMeta.author", "operations[0].content.type"])
def test_a_body_that_nessie_reads_later_is_excused_unless_nessie_writes(place: str) -> None:
    unread = error(400, f"The request body cannot be read: x - at `$.{place}`")
    assert decided(COMMIT, conflict("a"), unread, SOME) == UNREAD
    assert decided(COMMIT, answer(200, {}), unread, SOME) is None
    assert decided(COMMIT, unread, answer(200, {}), SOME) is None
    elsewhere = error(400, "The request body cannot be read: x - at `$.commitMeta.message`")
    assert decided(COMMIT, conflict("a"), elsewhere, SOME) is None


def test_an_invented_token_is_excused_only_beside_bounds() -> None:
    some, none = answer(200, {"diffs": [1]}), answer(200, {"diffs": []})
    diff = Request("GET", "/api/v2/trees/a/diff/b", (("page-token", ""),))
    assert decided(diff.with_query(**{"min-key": "c"}), some, none, SOME) == TOKEN_BOUNDS
    assert decided(diff.with_query(**{"prefix-key": "c"}), none, some, SOME) == TOKEN_BOUNDS
    assert decided(diff.with_query(**{"prefix-key": "c"}), some, none, SOME) is None
    assert decided(diff, some, none, SOME) is None


def test_refusals_of_media_types_of_configurations_may_differ() -> None:
    request = Request("POST", "/api/v2/config/repository", text="{}")
    refused, wrong = (error(415, text, "UNSUPPORTED_MEDIA_TYPE") for text in "ab")
    assert decided(request, refused, wrong, SOME) == MEDIA
    assert decided(request, error(400, "c"), refused, SOME) == MEDIA
    assert decided(request, refused, answer(200, {}), SOME) is None
    assert decided(COMMIT, refused, wrong, SOME) is None


def test_a_diff_that_is_written_to_is_refused_by_both() -> None:
    request = Request("PUT", "/api/v2/trees/a/diff/b@$H1")
    unassigned = error(400, "assignReference.assignTo: must not be null")
    assert decided(request, unassigned, answer(405), SOME) == SPANNED
    assert decided(request, answer(200, {}), answer(405), SOME) is None
    assert decided(COMMIT, unassigned, answer(405), SOME) is None


def test_a_filter_without_a_boolean_is_excused_if_nessie_did_not_apply_it() -> None:
    request = Request("GET", "/api/v2/trees/main/entries", (("filter", "1"),))
    wrong = error(400, "Filter must be true or false, but is an int")
    some, none = answer(200, {"entries": [1]}), answer(200, {"entries": []})
    lost = error(404, "Commit 'x' not found", "REFERENCE_NOT_FOUND")
    assert nothing_filtered(request, none, wrong)
    assert nothing_filtered(request, lost, wrong)
    assert not nothing_filtered(request, some, wrong)
    assert not nothing_filtered(request, none, error(400, "something else"))
    assert not nothing_filtered(Request("GET", request.path), none, wrong)

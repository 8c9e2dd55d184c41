"""Endpoints for entries, histories and differences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api import actions
from morag.api.actions import LogRequest, LogViews
from morag.api.checks import Checks
from morag.api.endpoints import FETCH_OPERATIONS, FILTER, Parameter
from morag.api.json_pieces import json_encoding
from morag.api.v2.parameters import (
    KEY,
    MAX_KEY,
    MAX_RECORDS,
    MIN_KEY,
    PAGE_TOKEN,
    PREFIX_KEY,
    endpoint,
    paging,
)
from morag.rest import responses
from morag.rest.responses import LogEntryView, PutView, ReferenceView
from morag.service.listings import KeySelection

if TYPE_CHECKING:
    from morag.api.call import Call, PageOf
    from morag.api.later import Answer
    from morag.model.references import Reference

_KEYS: Final = (KEY, MIN_KEY, MAX_KEY, PREFIX_KEY)
_ENTRY: Final = json_encoding("entry of version 2")
_LOG_VIEWS: Final = LogViews(
    responses.Log,
    LogEntryView.of,
    PutView.of,
    json_encoding("log entry of version 2", LogEntryView.of),
)


@endpoint(
    "GET",
    "/trees/{ref}/entries",
    "List the entries of a commit",
    query=(
        MAX_RECORDS,
        PAGE_TOKEN,
        *_KEYS,
        FILTER,
        Parameter("content", "Whether to add the content.", "boolean"),
    ),
    gives=responses.Entries,
    errors=(404,),
)
def get_entries(call: Call) -> Answer:
    selection, with_content = _selection(call), call.query.flag("content")
    with Checks("getEntries") as check:
        ref = check.ref_spec("refName", call.parameters["ref"])

    def page(reference: Reference) -> PageOf:
        view = ReferenceView.of(reference)
        return lambda none, token, has_more: responses.Entries(none, token, view, has_more)

    return actions.get_entries(
        call, call.ref(ref), selection, page, _ENTRY, with_content=with_content
    )


@endpoint(
    "GET",
    "/trees/{ref}/history",
    "List the history of a commit, newest first",
    query=(
        MAX_RECORDS,
        PAGE_TOKEN,
        Parameter("limit-hash", "The oldest commit to list."),
        FILTER,
        FETCH_OPERATIONS,
    ),
    gives=responses.Log,
    errors=(404,),
)
def get_history(call: Call) -> Answer:
    query = call.query
    filter, fetch_all, page = query.text("filter"), query.fetches_all(), paging(call)
    limit_hash = query.text("limit-hash")
    with Checks("getCommitLog") as check:
        ref = check.ref_spec("ref", call.parameters["ref"])
        limit = check.hash_and_steps("params.startHash", ref.name, limit_hash)
    newest, oldest = call.ref(ref), None if limit_hash is None else call.ref(limit)
    request = LogRequest(newest, oldest, page, filter, fetch_all)
    return actions.get_log(call, request, _LOG_VIEWS)


@endpoint(
    "GET",
    "/trees/{from}/diff/{to}",
    "List the differences between two commits",
    query=(MAX_RECORDS, PAGE_TOKEN, *_KEYS, FILTER),
    gives=responses.Diffs,
    errors=(404,),
)
def get_diff(call: Call) -> Answer:
    selection = _selection(call)
    with Checks("getDiff") as check:
        before = check.ref_spec("params.fromRef", call.parameters["from"])
        after = check.ref_spec("params.toRef", call.parameters["to"])

    def page(one: Reference, other: Reference) -> PageOf:
        views = ReferenceView.of(one), ReferenceView.of(other)
        return lambda none, token, has_more: responses.Diffs(none, token, *views, has_more)

    return actions.get_diff(call, call.ref(before), call.ref(after), selection, page)


def _selection(call: Call) -> KeySelection:
    query = call.query
    prefix, *bounds = (
        query.text(name) is not None for name in ("prefix-key", "min-key", "max-key")
    )
    return KeySelection(
        min_key=query.key("min-key"),
        max_key=query.key("max-key"),
        prefix=query.key("prefix-key"),
        keys=query.keys("key"),
        filter=query.text("filter"),
        paging=paging(call),
        combines=prefix and any(bounds),
    )

"""Endpoints for entries, histories and differences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api import actions
from morag.api.actions import LogRequest, LogViews
from morag.api.checks import Checks
from morag.api.endpoints import FETCH_OPERATIONS, FILTER, Parameter
from morag.api.json_pieces import json_encoding
from morag.api.url_parsing import NoSuchPath
from morag.api.v1 import structs
from morag.api.v1.parameters import HASH_ON_REF, MAX_RECORDS, PAGE_TOKEN, endpoint, paging
from morag.api.v1.structs import EntryV1, LogEntryV1, PutV1
from morag.service.listings import KeySelection, cut
from morag.service.ref_resolution import DETACHED, RequestedRef

if TYPE_CHECKING:
    from morag.api.call import Call, PageOf
    from morag.api.later import Answer
    from morag.model.results import Entry

_ENTRY: Final = json_encoding("entry of version 1", EntryV1.of)
_LOG_VIEWS: Final = LogViews(
    structs.LogV1,
    LogEntryV1.of,
    PutV1.of,
    json_encoding("log entry of version 1", LogEntryV1.of),
)


@endpoint(
    "GET",
    "/trees/tree/{name}/entries",
    "List the entries of a commit",
    query=(
        HASH_ON_REF,
        Parameter("namespaceDepth", "The number of elements that keys are cut down to.", "integer"),
        FILTER,
        MAX_RECORDS,
        PAGE_TOKEN,
    ),
    gives=structs.EntriesV1,
    errors=(404,),
)
def get_entries(call: Call) -> Answer:
    query, name = call.query, call.parameters["name"]
    depth, hash = query.number("namespaceDepth") or 0, query.text("hashOnRef")
    selection = KeySelection(filter=query.text("filter"), paging=paging(call))
    with Checks("getEntries") as check:
        check.name("refName", name)
        ref = check.hash_and_steps("params.hashOnRef", name, hash)

    def shown(entry: Entry) -> EntryV1:
        return EntryV1.of(cut(entry, depth) if depth > 0 else entry)

    return actions.get_entries(
        call, ref, selection, lambda _: structs.EntriesV1, _ENTRY, shown, depth=depth
    )


@endpoint(
    "GET",
    "/trees/tree/{name}/log",
    "List the history of a commit, newest first",
    query=(
        Parameter("startHash", "The oldest commit to list."),
        Parameter("endHash", "The newest commit to list; the head if absent."),
        FILTER,
        FETCH_OPERATIONS,
        MAX_RECORDS,
        PAGE_TOKEN,
    ),
    gives=structs.LogV1,
    errors=(404,),
)
def get_log(call: Call) -> Answer:
    query, name = call.query, call.parameters["name"]
    filter, fetch_all, page = query.text("filter"), query.fetches_all(), paging(call)
    oldest, newest = query.text("startHash"), query.text("endHash")
    with Checks("getCommitLog") as check:
        check.name("ref", name)
        check.hash("params.startHash", oldest)
        ref = check.hash_and_steps("params.endHash", name, newest)
    until = None if oldest is None else RequestedRef.of(name, oldest)
    request = LogRequest(ref, until, page, filter, fetch_all)
    return actions.get_log(call, request, _LOG_VIEWS)


@endpoint(
    "GET",
    "/diffs/{references}",
    "List the differences between two commits: /diffs/one...other, each with an optional *hash",
    gives=structs.DiffsV1,
    errors=(404,),
)
def get_diff(call: Call) -> Answer:
    one, dots, other = call.parameters["references"].partition("...")
    if not (one and dots and other):
        raise NoSuchPath(call.request.path)
    before, after = _diff_side(one), _diff_side(other)
    page: PageOf = lambda none, _, __: structs.DiffsV1(none)  # noqa: E731
    return actions.get_diff(call, before, after, KeySelection(), lambda *_: page)


def _diff_side(text: str) -> RequestedRef:
    name, _, hash = text.partition("*")
    return RequestedRef.unchecked(name or DETACHED, hash)

"""Entries, histories and differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api.call import ok
from morag.api.checks import Checks
from morag.api.endpoints import FETCH, FILTER, Parameter
from morag.api.paths import NoSuchPath
from morag.api.v1 import answers
from morag.api.v1.answers import EntryV1, LogEntryV1
from morag.api.v1.declared import HASH_ON_REF, MAX_RECORDS, PAGE_TOKEN, endpoint
from morag.service.listings import Wanted
from morag.service.places import DETACHED, Asked

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer


@endpoint(
    "GET",
    "/trees/tree/{name}/entries",
    "List what is on a commit",
    query=(
        HASH_ON_REF,
        Parameter("namespaceDepth", "Cut keys down to so many elements.", "integer"),
        FILTER,
        MAX_RECORDS,
        PAGE_TOKEN,
    ),
    gives=answers.EntriesV1,
    errors=(404,),
)
def get_entries(call: Call) -> Answer:
    query, name = call.query, call.parameters["name"]
    depth, hash = query.number("namespaceDepth") or 0, query.text("hashOnRef")
    wanted = Wanted(
        filter=query.text("filter"), limit=query.limit("maxRecords"), token=query.text("pageToken")
    )
    with Checks("getEntries") as check:
        check.name("refName", name)
        check.hash_or_relative("params.hashOnRef", hash)
    asked = Asked(name, hash or "")

    def work() -> Response:
        _, page = call.service.listings.entries(asked, wanted, depth=depth)
        shown = tuple(map(EntryV1.of, page.items))
        return ok(answers.EntriesV1(page.token, shown, page.token is not None))

    return call.in_thread(work)


@endpoint(
    "GET",
    "/trees/tree/{name}/log",
    "List the commits that led to a commit, newest first",
    query=(
        Parameter("startHash", "The oldest commit to list."),
        Parameter("endHash", "The newest commit to list; the head if absent."),
        FILTER,
        FETCH,
        MAX_RECORDS,
        PAGE_TOKEN,
    ),
    gives=answers.LogV1,
    errors=(404,),
)
def get_log(call: Call) -> Answer:
    query, name = call.query, call.parameters["name"]
    filter, limit, all = query.text("filter"), query.limit("maxRecords"), query.fetches_all()
    oldest, newest, token = (query.text(one) for one in ("startHash", "endHash", "pageToken"))
    with Checks("getCommitLog") as check:
        check.name("ref", name)
        check.hash("params.startHash", oldest)
        check.hash_or_relative("params.endHash", newest)
    asked = Asked(name, newest or "")
    until = None if oldest is None else Asked(name, oldest)
    start = None if token is None else Asked(name, token)

    def work() -> Response:
        page = call.service.listings.log(
            asked, until=until, filter=filter, with_operations=all, limit=limit, token=start
        )
        shown = tuple(map(LogEntryV1.of, page.items))
        return ok(answers.LogV1(page.token, shown, page.token is not None))

    return call.in_thread(work)


@endpoint(
    "GET",
    "/diffs/{references}",
    "List what differs between two commits: /diffs/one...other, each perhaps with *hash",
    gives=answers.DiffsV1,
    errors=(404,),
)
def get_diff(call: Call) -> Answer:
    one, dots, other = call.parameters["references"].partition("...")
    if not (one and dots and other):
        raise NoSuchPath(call.request.path)
    before, after = _diffed(one), _diffed(other)

    def work() -> Response:
        *_, page = call.service.listings.diff(before, after, Wanted())
        return ok(answers.DiffsV1(page.items))

    return call.in_thread(work)


def _diffed(text: str) -> Asked:
    name, _, hash = text.partition("*")
    return Asked(name or DETACHED, hash)

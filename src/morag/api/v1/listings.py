"""Entries, histories and differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api.call import ok_list, ok_log, ok_page
from morag.api.checks import Checks
from morag.api.endpoints import FETCH, FILTER, Parameter
from morag.api.paths import NoSuchPath
from morag.api.v1 import answers
from morag.api.v1.answers import EntryV1, LogEntryV1, PutV1
from morag.api.v1.declared import HASH_ON_REF, MAX_RECORDS, PAGE_TOKEN, endpoint
from morag.service.listings import Wanted, cut
from morag.service.paging import Paging
from morag.service.places import DETACHED, Asked

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.later import Answer, Pieces
    from morag.model.listed import Entry


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
    paging = Paging(query.limit("maxRecords"), query.text("pageToken"))
    wanted = Wanted(filter=query.text("filter"), paging=paging)
    with Checks("getEntries") as check:
        check.name("refName", name)
        check.hash_or_relative("params.hashOnRef", hash)
    asked = Asked(name, hash or "")

    def shown(entry: Entry) -> EntryV1:
        return EntryV1.of(cut(entry, depth) if depth > 0 else entry)

    def work() -> Pieces:
        _, found = call.service.listings.entries(asked, wanted, depth=depth)
        return ok_page("entries", found, answers.EntriesV1, shown)

    return call.in_pieces(work)


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
    filter, all = query.text("filter"), query.fetches_all()
    oldest, newest = query.text("startHash"), query.text("endHash")
    paging = Paging(query.limit("maxRecords"), query.text("pageToken"))
    with Checks("getCommitLog") as check:
        check.name("ref", name)
        check.hash("params.startHash", oldest)
        check.hash_or_relative("params.endHash", newest)
    asked = Asked(name, newest or "")
    until = None if oldest is None else Asked(name, oldest)

    def work() -> Pieces:
        listings = call.service.listings
        found = listings.log(asked, paging, until=until, filter=filter, with_operations=all)
        if all:
            return ok_log(found, answers.LogV1, LogEntryV1.of, PutV1.of, listings.operations)
        return ok_page("logEntries", found, answers.LogV1, LogEntryV1.of)

    return call.in_pieces(work)


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

    def work() -> Pieces:
        *_, found = call.service.listings.diff(before, after, Wanted())
        return ok_list("diffs", found, lambda: answers.DiffsV1(()))

    return call.in_pieces(work)


def _diffed(text: str) -> Asked:
    name, _, hash = text.partition("*")
    return Asked(name or DETACHED, hash)

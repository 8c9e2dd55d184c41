"""Entries, histories and differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api import v1_answers
from morag.api.call import checked, ok
from morag.api.checks import reference_name
from morag.api.endpoints import FETCH, FILTER, Parameter
from morag.api.paths import NoSuchPath
from morag.api.reading import paged
from morag.api.v1.declared import (
    HASH_ON_REF,
    MAX_RECORDS,
    PAGE_TOKEN,
    beside,
    endpoint,
    on_reference,
)
from morag.api.v1_answers import EntryV1, LogEntryV1
from morag.model.names import check_hash
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
    gives=v1_answers.EntriesV1,
    errors=(404,),
)
def get_entries(call: Call) -> Answer:
    query = call.query
    name = reference_name("getEntries.refName", call.parameters["name"])
    asked = on_reference(call, name, "getEntries.params.hashOnRef")
    depth = query.number("namespaceDepth") or 0
    wanted = Wanted(
        filter=query.text("filter"), limit=query.limit("maxRecords"), token=query.text("pageToken")
    )

    def work() -> Response:
        _, page = call.service.listings.entries(asked, wanted, depth=depth)
        shown = tuple(map(EntryV1.of, page.items))
        return ok(v1_answers.EntriesV1(page.token, shown, page.token is not None))

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
    gives=v1_answers.LogV1,
    errors=(404,),
)
def get_log(call: Call) -> Answer:
    query = call.query
    name = reference_name("getCommitLog.ref", call.parameters["name"])
    asked = _at_hash(name, "getCommitLog.params.endHash", query.text("endHash"))
    oldest, token = query.text("startHash"), query.text("pageToken")
    until = None
    if oldest is not None:
        until = _at_hash(name, "getCommitLog.params.startHash", oldest)
    start = None if token is None else paged(name, token)
    filter, limit, all = query.text("filter"), query.limit("maxRecords"), query.fetches_all()

    def work() -> Response:
        page = call.service.listings.log(
            asked, until=until, filter=filter, with_operations=all, limit=limit, token=start
        )
        shown = tuple(map(LogEntryV1.of, page.items))
        return ok(v1_answers.LogV1(page.token, shown, page.token is not None))

    return call.in_thread(work)


@endpoint(
    "GET",
    "/diffs/{references}",
    "List what differs between two commits: /diffs/one...other, each perhaps with *hash",
    gives=v1_answers.DiffsV1,
    errors=(404,),
)
def get_diff(call: Call) -> Answer:
    one, dots, other = call.parameters["references"].partition("...")
    if not dots:
        raise NoSuchPath(call.request.path)
    before, after = _diffed("fromRef", one), _diffed("toRef", other)

    def work() -> Response:
        *_, page = call.service.listings.diff(before, after, Wanted())
        return ok(v1_answers.DiffsV1(page.items))

    return call.in_thread(work)


def _at_hash(name: str, where: str, hash: str | None) -> Asked:
    """A commit by its hash: steps from there are not understood here."""
    return Asked(name, None if hash is None else checked(where, check_hash, hash))


def _diffed(which: str, text: str) -> Asked:
    name, star, hash = text.partition("*")
    return beside(
        name or DETACHED,
        f"getDiff.params.{which.replace('Ref', 'Hash')}OnRef",
        hash if star else None,
    )

"""Entries, histories and differences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api.call import ok_log, ok_page
from morag.api.checks import Checks
from morag.api.endpoints import FETCH, FILTER, Parameter
from morag.api.v2 import answers
from morag.api.v2.answers import LogEntryView, PutView, ReferenceView
from morag.api.v2.declared import (
    KEY,
    MAX_KEY,
    MAX_RECORDS,
    MIN_KEY,
    PAGE_TOKEN,
    PREFIX_KEY,
    endpoint,
)
from morag.service.listings import Wanted
from morag.service.paging import Paging
from morag.service.places import Asked

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.later import Answer, Pieces

_KEYS: Final = (KEY, MIN_KEY, MAX_KEY, PREFIX_KEY)


@endpoint(
    "GET",
    "/trees/{ref}/entries",
    "List what is on a commit",
    query=(
        MAX_RECORDS,
        PAGE_TOKEN,
        *_KEYS,
        FILTER,
        Parameter("content", "Whether to add the content.", "boolean"),
    ),
    gives=answers.Entries,
    errors=(404,),
)
def get_entries(call: Call) -> Answer:
    wanted, with_content = _wanted(call), call.query.flag("content")
    with Checks("getEntries") as check:
        check.ref_spec("refName", call.parameters["ref"])
    asked = call.place()

    def work() -> Pieces:
        listings = call.service.listings
        reference, found = listings.entries(asked, wanted, with_content=with_content)
        place = ReferenceView.of(reference)

        def page(none: tuple[()], token: str | None, has_more: bool) -> answers.Entries:
            return answers.Entries(none, token, place, has_more)

        return ok_page("entries", found, page)

    return call.in_pieces(work)


@endpoint(
    "GET",
    "/trees/{ref}/history",
    "List the commits that led to a commit, newest first",
    query=(
        MAX_RECORDS,
        PAGE_TOKEN,
        Parameter("limit-hash", "The last commit to list."),
        FILTER,
        FETCH,
    ),
    gives=answers.Log,
    errors=(404,),
)
def get_history(call: Call) -> Answer:
    query = call.query
    filter, all, limit_hash = query.text("filter"), query.fetches_all(), query.text("limit-hash")
    paging = Paging(query.limit("max-records"), query.text("page-token"))
    with Checks("getCommitLog") as check:
        check.ref_spec("ref", call.parameters["ref"])
        check.hash_or_relative("params.startHash", limit_hash)
    asked = call.place()
    until = None if limit_hash is None else Asked(asked.name, limit_hash)

    def work() -> Pieces:
        listings = call.service.listings
        found = listings.log(asked, paging, until=until, filter=filter, with_operations=all)
        if all:
            return ok_log(found, answers.Log, LogEntryView.of, PutView.of, listings.operations)
        return ok_page("logEntries", found, answers.Log, LogEntryView.of)

    return call.in_pieces(work)


@endpoint(
    "GET",
    "/trees/{from}/diff/{to}",
    "List what differs between two commits",
    query=(MAX_RECORDS, PAGE_TOKEN, *_KEYS, FILTER),
    gives=answers.Diffs,
    errors=(404,),
)
def get_diff(call: Call) -> Answer:
    wanted = _wanted(call)
    with Checks("getDiff") as check:
        check.ref_spec("params.fromRef", call.parameters["from"])
        check.ref_spec("params.toRef", call.parameters["to"])
    before, after = call.place("from"), call.place("to")

    def work() -> Pieces:
        one, other, found = call.service.listings.diff(before, after, wanted)
        places = ReferenceView.of(one), ReferenceView.of(other)

        def page(none: tuple[()], token: str | None, has_more: bool) -> answers.Diffs:
            return answers.Diffs(none, token, *places, has_more)

        return ok_page("diffs", found, page)

    return call.in_pieces(work)


def _wanted(call: Call) -> Wanted:
    query = call.query
    prefix, *bounds = (
        query.text(name) is not None for name in ("prefix-key", "min-key", "max-key")
    )
    return Wanted(
        min_key=query.key("min-key"),
        max_key=query.key("max-key"),
        prefix=query.key("prefix-key"),
        keys=query.keys("key"),
        filter=query.text("filter"),
        paging=Paging(query.limit("max-records"), query.text("page-token")),
        combines=prefix and any(bounds),
    )

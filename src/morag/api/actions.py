"""The actions that both versions of the API share, after a request was parsed and checked.

An endpoint turns parameters and body into the arguments of an action, and passes functions that
build the response of its version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from morag.api.call import PageOf, ok_at, ok_encoded_page, ok_list, ok_log, ok_page
from morag.api.json_pieces import as_encoded, json_encoding
from morag.model.results import Diff, LogEntry
from morag.rest.responses import KeyedContent
from morag.service.paging import Paging
from morag.service.ref_resolution import RequestedRef
from morag.versions.commit import CommitRequest
from morag.versions.encoding import Encoding

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer, Pieces
    from morag.model.content import Content
    from morag.model.keys import ContentKey
    from morag.model.merging import MergeOptions, MergeResult
    from morag.model.meta import CommitMeta
    from morag.model.names import ReferenceKind
    from morag.model.operations import Operation
    from morag.model.references import Reference
    from morag.model.results import CommitResult, Entry
    from morag.rest.responses import ReferenceView
    from morag.service.listings import KeySelection

ShowReference: TypeAlias = "Callable[[Reference], Response]"

# Up to this number of keys are looked up at once, more by a thread, because contents may be large.
# Most clients request no more than a table with its namespaces.
_FEW_KEYS: Final = 4
_FEW_COMMITS: Final = 4  # The same for commits to transplant.

_CONTENT: Final = json_encoding("content")


class LogRequest(Struct, frozen=True):
    """The part of a history to list. `fetch_all` adds the operations of each commit."""

    newest: RequestedRef
    oldest: RequestedRef | None
    paging: Paging
    filter: str | None
    fetch_all: bool


class LogViews(Struct, frozen=True):
    """How a version shows a page of a history, a commit of the page, and one of its operations.

    `encoding` is for commits without operations.
    """

    page: PageOf
    entry: Callable[[LogEntry, tuple[()] | None], Struct]
    operation: Callable[[Any], object]
    encoding: Encoding[LogEntry]


def list_references(
    call: Call,
    paging: Paging,
    page: PageOf,
    encoding: Encoding[Reference],
    show: Callable[[ReferenceView], Struct] | None = None,
) -> Answer:
    """`encoding` is for references without metadata and filter, `show` for all others."""
    references = call.service.references
    fetch_all, filter = call.query.fetches_all(), call.query.text("filter")
    plain = not (fetch_all or filter)

    def work() -> Pieces:
        if plain:
            return ok_encoded_page("references", references.encoded_list(paging, encoding), page)
        found = references.list(paging, fetch_all=fetch_all, filter=filter)
        return ok_page("references", found, page, show)

    return call.in_pieces(work, plain=plain)


def get_reference(
    call: Call, name: str, show: Callable[[ReferenceView], Struct], *, fetch_all: bool = False
) -> Answer:
    def work() -> Response:
        found = call.service.references.get(name, fetch_all=fetch_all)
        return ok_at(show(found), found)

    return call.in_thread(work) if fetch_all else call.near(work, RequestedRef(name))


def create_reference(
    call: Call, kind: ReferenceKind, name: str, source: RequestedRef, show: ShowReference
) -> Answer:
    def work() -> Answer:
        return call.in_reference_lane(call.service.references.creation(kind, name, source), show)

    return call.near(work, source, is_change=True)


def assign_reference(
    call: Call,
    kind: ReferenceKind | None,
    target: RequestedRef,
    to: RequestedRef,
    show: ShowReference,
) -> Answer:
    return call.in_turn(lambda: show(call.service.references.assign(kind, target, to)))


def delete_reference(
    call: Call, kind: ReferenceKind | None, target: RequestedRef, show: ShowReference
) -> Answer:
    def work() -> Answer:
        return call.in_reference_lane(call.service.references.deletion(kind, target), show)

    return call.near(work, target, is_change=True)


def get_content(
    call: Call,
    ref: RequestedRef,
    key: ContentKey,
    show: Callable[[Content, Reference], Response],
) -> Answer:
    def work() -> Answer:
        reference, found = call.service.contents.find(ref, key, _CONTENT)
        return call.showing(found, lambda content: show(content, reference))

    return call.near(work, ref)


def get_contents(
    call: Call,
    ref: RequestedRef,
    keys: Sequence[ContentKey],
    show: Callable[[tuple[KeyedContent, ...], Reference], Struct],
    *,
    tagged: bool,
) -> Answer:
    """Contents of several keys. If `tagged`, the hash of the reference is the entity tag."""

    def at_once() -> Answer:
        reference, found = call.service.contents.find_all(ref, keys, _CONTENT)
        if any(content.is_large for _, content in found):
            return call.in_pieces(in_pieces)
        shown = tuple([_keyed((key, content.encoded())) for key, content in found])
        return ok_at(show(shown, reference), reference if tagged else None)

    def in_pieces() -> Pieces:
        reference, batches = call.service.contents.get_all(ref, keys, _CONTENT)
        at = reference if tagged else None
        return ok_list("contents", batches, lambda: show((), reference), _keyed, at)

    if len(keys) <= _FEW_KEYS:
        return call.near(at_once, ref)
    return call.in_pieces(in_pieces, ref, plain=True)


def get_entries(
    call: Call,
    ref: RequestedRef,
    selection: KeySelection,
    page: Callable[[Reference], PageOf],
    encoding: Encoding[Entry],
    show: Callable[[Entry], Struct] | None = None,
    *,
    with_content: bool = False,
    depth: int = 0,
) -> Answer:
    """`encoding` is for whole ranges of entries without content, `show` for all others."""
    listings = call.service.listings
    plain = selection.is_range and not with_content and depth <= 0

    def work() -> Pieces:
        if plain:
            reference, encoded = listings.encoded_entries(ref, selection, encoding)
            return ok_encoded_page("entries", encoded, page(reference))
        reference, found = listings.entries(ref, selection, with_content=with_content, depth=depth)
        return ok_page("entries", found, page(reference), show)

    return call.in_pieces(work, ref, plain=plain)


def get_log(call: Call, request: LogRequest, views: LogViews) -> Answer:
    listings = call.service.listings
    plain = not (request.filter or request.fetch_all)

    def work() -> Pieces:
        if plain:
            encoded = listings.encoded_log(
                request.newest, request.paging, views.encoding, until=request.oldest
            )
            return ok_encoded_page("logEntries", encoded, views.page)
        found = listings.log(
            request.newest,
            request.paging,
            until=request.oldest,
            filter=request.filter,
            with_operations=request.fetch_all,
        )
        if request.fetch_all:
            return ok_log(found, views.page, views.entry, views.operation, listings.operations)
        return ok_page("logEntries", found, views.page, lambda entry: views.entry(entry, None))

    refs = [ref for ref in (request.newest, request.oldest) if ref is not None]
    return call.in_pieces(work, *refs, plain=plain)


def get_diff(
    call: Call,
    before: RequestedRef,
    after: RequestedRef,
    selection: KeySelection,
    page: Callable[[Reference, Reference], PageOf],
) -> Answer:
    def work() -> Pieces:
        one, other, found = call.service.listings.diff(before, after, selection, _CONTENT)
        return ok_page("diffs", found, page(one, other), _diff)

    return call.in_pieces(work)


def commit(
    call: Call,
    target: RequestedRef,
    operations: Sequence[Operation],
    meta: CommitMeta,
    show: Callable[[str, CommitResult], Response],
) -> Answer:
    """Commit operations; `show` gets the name of the branch and the result."""

    def in_lane(request: CommitRequest) -> Answer:
        request.weigh(len(call.request.body))
        return call.in_lane(request, lambda result: show(request.branch, result))

    request = call.service.changes.commit_request(target, operations, meta)
    if isinstance(request, CommitRequest):
        return in_lane(request)
    look_up = request
    return call.near_lane(lambda may_walk: in_lane(look_up(may_walk)), target)


def merge(
    call: Call,
    source: RequestedRef,
    target: RequestedRef,
    options: MergeOptions,
    show: Callable[[MergeResult], Response],
) -> Answer:
    changes = call.service.changes

    def work(may_walk: bool) -> Answer:
        return call.in_lane(changes.merge_request(source, target, options, may_walk=may_walk), show)

    return call.near_lane(work, source, target)


def transplant(
    call: Call,
    source: str,
    hashes: Sequence[str],
    target: RequestedRef,
    options: MergeOptions,
    show: Callable[[MergeResult], Response],
) -> Answer:
    changes = call.service.changes

    def work(commits: Sequence[RequestedRef], may_walk: bool) -> Answer:
        request = changes.transplant_request(source, commits, target, options, may_walk=may_walk)
        return call.in_lane(request, show)

    def parsed() -> list[RequestedRef]:
        return [RequestedRef.of(source, hash) for hash in hashes]

    if len(hashes) <= _FEW_COMMITS:
        few = parsed()
        return call.near_lane(partial(work, few), target, *few)
    return call.before_lane(lambda: work(parsed(), may_walk=True))


def _keyed(found: tuple[ContentKey, bytes]) -> KeyedContent:
    key, content = found
    return KeyedContent(key, as_encoded(content))


def _diff(found: tuple[ContentKey, bytes | None, bytes | None]) -> Diff:
    key, *contents = found
    return Diff(key, *[None if json is None else as_encoded(json) for json in contents])

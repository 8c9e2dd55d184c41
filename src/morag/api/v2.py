"""REST API version 2. Each handler decodes, calls one service method, and encodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from morag.api import answers, bodies
from morag.api.answers import AddedContent, KeyedContent, LogEntryView, ReferenceView
from morag.api.call import checked, ok, ok_at
from morag.api.checks import optional_kind, reference_kind, reference_name, required, some
from morag.api.endpoints import FETCH, FILTER, Endpoints, Parameter
from morag.api.headers import with_headers
from morag.api.later import InLane
from morag.api.paths import NoSuchPath, key_in_path, key_of_text
from morag.errors import BadRequest, UnsupportedMediaType
from morag.model.configs import ConfigUpdate, ConfigUpdated, RepositoryConfigs
from morag.model.merging import MergeBehavior, MergeResult
from morag.model.meta import CommitMeta
from morag.model.names import NAME_RULE, check_reference_name
from morag.model.references import Reference
from morag.service.changes import Wishes
from morag.service.configs import config_of
from morag.service.listings import Wanted
from morag.service.places import DETACHED, Asked, asked_beside
from morag.service.service import ServerConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.api.bodies import ReferenceBody
    from morag.api.call import Answer, Call
    from morag.api.http import Response
    from morag.model.keys import ContentKey
    from morag.versions.commit import CommitResult

endpoint = Endpoints("/api/v2")

MAX_RECORDS: Final = Parameter("max-records", "How many to answer, at the most.", "integer")
PAGE_TOKEN: Final = Parameter("page-token", "The `token` of the page before.")
KEY: Final = Parameter("key", "Only these keys.", repeated=True)
MIN_KEY: Final = Parameter("min-key", "The first key.")
MAX_KEY: Final = Parameter("max-key", "The last key.")
PREFIX_KEY: Final = Parameter("prefix-key", "Only this key and the keys below it.")
WITH_DOC: Final = Parameter("with-doc", "Accepted; no documentation is stored.", "boolean")
FOR_WRITE: Final = Parameter("for-write", "Accepted; reads do not differ.", "boolean")
TYPE: Final = Parameter("type", "What the reference must be.", values=("BRANCH", "TAG"))
_KEYS: Final = (KEY, MIN_KEY, MAX_KEY, PREFIX_KEY)
_REQUESTED_KEYS: Final = "getMultipleContents.request.requestedKeys"
_FEW: Final = 20  # Keys that are looked up at once, rather than by a thread.


@endpoint("GET", "/config", "What this server is", gives=ServerConfig)
def get_config(call: Call) -> Answer:
    return ok(call.service.config)


@endpoint(
    "GET",
    "/config/repository",
    "Read configurations of the repository",
    query=(Parameter("type", "Which ones, such as GARBAGE_COLLECTOR.", repeated=True),),
    gives=RepositoryConfigs,
)
def get_repository_config(call: Call) -> Answer:
    types = call.query.texts("type")
    return call.in_thread(lambda: ok(RepositoryConfigs(call.service.configs.read(types))))


@endpoint(
    "POST",
    "/config/repository",
    "Replace a configuration of the repository",
    takes=ConfigUpdate,
    gives=ConfigUpdated,
    errors=(415,),
)
def update_repository_config(call: Call) -> Answer:
    body = bodies.CONFIG.read(call.request.body)
    if body is None:
        raise UnsupportedMediaType("HTTP 415 Unsupported Media Type")
    config = config_of(body.config)
    return call.in_thread(lambda: ok(ConfigUpdated(call.service.configs.update(config))))


@endpoint(
    "GET",
    "/trees",
    "List branches and tags",
    query=(FETCH, FILTER, MAX_RECORDS, PAGE_TOKEN),
    gives=answers.References,
)
def list_references(call: Call) -> Answer:
    query = call.query
    all, limit = query.fetches_all(), query.limit("max-records")
    filter, token = query.text("filter"), query.text("page-token")

    def work() -> Response:
        page = call.service.references.list(fetch_all=all, filter=filter, limit=limit, token=token)
        shown = tuple(map(ReferenceView.described, page.items))
        return ok(answers.References(page.token, shown, page.token is not None))

    return call.in_thread(work)


@endpoint(
    "POST",
    "/trees",
    "Create a branch or tag",
    query=(
        Parameter("name", "The name of the new reference.", required=True),
        Parameter("type", "What it shall be.", values=("BRANCH", "TAG"), required=True),
    ),
    takes=bodies.ReferenceBody,
    gives=answers.SingleReference,
    errors=(404, 409),
)
def create_reference(call: Call) -> Answer:
    source = bodies.REFERENCE.read(call.request.body)
    where = "createReference"
    name = reference_name(f"{where}.name", required(f"{where}.name", call.query.text("name")))
    kind = reference_kind(f"{where}.type", required(f"{where}.type", call.query.text("type")))
    asked = Asked() if source is None else asked_by(source)
    return call.in_thread(lambda: _single(call.service.references.create(kind, name, asked)))


@endpoint(
    "GET",
    "/trees/{ref}",
    "Get a branch or tag",
    query=(FETCH,),
    gives=answers.SingleReference,
    errors=(404,),
)
def get_reference(call: Call) -> Answer:
    name = _name_only(call, "getReferenceByName.params.ref", "by name")
    if call.query.fetches_all():
        return call.in_thread(lambda: _described(call, name, fetch_all=True))
    return _described(call, name, fetch_all=False)


@endpoint(
    "PUT",
    "/trees/{ref}",
    "Point a branch or tag elsewhere",
    query=(TYPE,),
    takes=bodies.ReferenceBody,
    gives=answers.SingleReference,
    errors=(404, 409),
)
def assign_reference(call: Call) -> Answer:
    body = bodies.REFERENCE.read(call.request.body)
    where = "assignReference"
    kind = optional_kind(f"{where}.type", call.query.text("type"))
    target = call.target(f"{where}.ref")
    to = asked_by(bodies.REFERENCE.required(f"{where}.assignTo", body))
    return call.in_thread(lambda: _single(call.service.references.assign(kind, target, to)))


@endpoint(
    "DELETE",
    "/trees/{ref}",
    "Delete a branch or tag",
    query=(TYPE,),
    gives=answers.SingleReference,
    errors=(404, 409),
)
def delete_reference(call: Call) -> Answer:
    kind = optional_kind("deleteReference.type", call.query.text("type"))
    target = call.target("deleteReference.ref")
    return call.in_thread(lambda: _single(call.service.references.delete(kind, target)))


@endpoint(
    "GET",
    "/trees/{ref}/recent-changes",
    "Recent heads of a reference, checked against the store",
    query=(Parameter("scan-commits", "How many commits to check below the head.", "integer"),),
    gives=answers.RecentChanges,
    errors=(404,),
)
def get_recent_changes(call: Call) -> Answer:
    name = _name_only(call, "getReferenceHistory.params.ref", "history")
    scan = call.query.number("scan-commits") or 0
    return call.in_thread(
        lambda: ok(answers.RecentChanges.of(call.service.references.history(name, scan)))
    )


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
    asked, wanted = call.place("getEntries.ref"), _wanted(call)
    with_content = call.query.flag("content")

    def work() -> Response:
        listings = call.service.listings
        reference, page = listings.entries(asked, wanted, with_content=with_content)
        place = ReferenceView.of(reference)
        return ok(answers.Entries(page.token, page.items, place, page.token is not None))

    return call.in_thread(work)


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
    query, asked = call.query, call.place("getCommitLog.ref")
    limit_hash, token = query.text("limit-hash"), query.text("page-token")
    until = None
    if limit_hash is not None:
        where = "getCommitLog.params.startHash"
        until = checked(where, lambda text: asked_beside(asked.name, text), limit_hash)
    start = None if token is None else paged(asked.name, token)
    filter, limit, all = query.text("filter"), query.limit("max-records"), query.fetches_all()

    def work() -> Response:
        page = call.service.listings.log(
            asked, until=until, filter=filter, with_operations=all, limit=limit, token=start
        )
        shown = tuple(map(LogEntryView.of, page.items))
        return ok(answers.Log(page.token, shown, page.token is not None))

    return call.in_thread(work)


@endpoint(
    "GET",
    "/trees/{from}/diff/{to}",
    "List what differs between two commits",
    query=(MAX_RECORDS, PAGE_TOKEN, *_KEYS, FILTER),
    gives=answers.Diffs,
    errors=(404,),
)
def get_diff(call: Call) -> Answer:
    before = call.place("getDiff.params.fromRef", "from")
    after = call.place("getDiff.params.toRef", "to")
    wanted = _wanted(call)

    def work() -> Response:
        one, other, page = call.service.listings.diff(before, after, wanted)
        places = ReferenceView.of(one), ReferenceView.of(other)
        return ok(answers.Diffs(page.token, page.items, *places, page.token is not None))

    return call.in_thread(work)


@endpoint(
    "GET",
    "/trees/{ref}/contents/{key}",
    "Get the content of one key",
    query=(WITH_DOC, FOR_WRITE),
    gives=answers.SingleContent,
    errors=(404,),
)
def get_content(call: Call) -> Answer:
    key = key_in_path(call.parameters["key"])
    reference, content = call.service.contents.get(call.place("getContent.ref"), key)
    return ok_at(answers.SingleContent(content, ReferenceView.of(reference)), reference)


@endpoint(
    "GET",
    "/trees/{ref}/contents",
    "Get the contents of several keys",
    query=(Parameter("key", "The keys.", repeated=True, required=True), WITH_DOC, FOR_WRITE),
    gives=answers.Contents,
    errors=(404,),
)
def get_several_contents(call: Call) -> Answer:
    if call.request.path.endswith("/"):  # A key that is empty, rather than no key.
        raise NoSuchPath(call.request.path)
    texts = call.query.texts("key")
    some(_REQUESTED_KEYS, texts)
    return _contents(call, [key_of_text(text) for text in texts if text])


@endpoint(
    "POST",
    "/trees/{ref}/contents",
    "Get the contents of several keys",
    query=(WITH_DOC, FOR_WRITE),
    takes=bodies.KeysBody,
    gives=answers.Contents,
    errors=(404,),
)
def get_multiple_contents(call: Call) -> Answer:
    body = required("getMultipleContents.request", bodies.KEYS.read(call.request.body))
    some(_REQUESTED_KEYS, body.requested_keys)
    return _contents(call, body.requested_keys or ())


@endpoint(
    "POST",
    "/trees/{branch}/history/commit",
    "Commit changes to keys, all or nothing",
    takes=bodies.CommitBody,
    gives=answers.Committed,
    errors=(404, 409),
)
def commit(call: Call) -> Answer:
    where = "commitMultipleOperations"
    body = required(f"{where}.operations", bodies.COMMIT.read(call.request.body))
    target = call.target(f"{where}.branch", "branch")
    some(f"{where}.operations.operations", body.operations)
    meta = with_headers(body.commit_meta.meta(), call.request.headers)
    changes = body.changes(expecting=False)
    request = call.service.changes.commit_request(target, changes, meta)

    def answer(result: CommitResult) -> Response:
        branch = Reference("BRANCH", request.branch, result.hash)
        added = tuple(AddedContent(key, id) for key, id in result.added.items())
        return ok_at(answers.Committed(ReferenceView.of(branch), added or None), branch)

    return InLane(call.service.repository, request, answer, call.render)


@endpoint(
    "POST",
    "/trees/{branch}/history/merge",
    "Merge what another reference changed",
    takes=bodies.MergeBody,
    gives=MergeResult,
    errors=(404, 409),
)
def merge(call: Call) -> Answer:
    where = "mergeRefIntoBranch"
    body = required(f"{where}.merge", bodies.MERGE.read(call.request.body))
    target = call.target(f"{where}.branch", "branch")
    name = source_name(where, "merge", body.from_ref_name)
    if body.message is not None:
        some(f"{where}.merge.message", body.message)
    source = asked_beside(name, body.from_hash)
    meta = CommitMeta(message="") if body.commit_meta is None else body.commit_meta.meta()
    if not meta.message and body.message is not None:
        meta = msgspec.structs.replace(meta, message=body.message)
    wishes = wishes_of(body, with_headers(meta, call.request.headers))
    return call.in_thread(lambda: ok(call.service.changes.merge(source, target, wishes)))


@endpoint(
    "POST",
    "/trees/{branch}/history/transplant",
    "Apply commits of another reference",
    takes=bodies.TransplantBody,
    gives=MergeResult,
    errors=(404, 409),
)
def transplant(call: Call) -> Answer:
    where = "transplantCommitsIntoBranch"
    body = required(f"{where}.transplant", bodies.TRANSPLANT.read(call.request.body))
    target = call.target(f"{where}.branch", "branch")
    name = source_name(where, "transplant", body.from_ref_name)
    hashes = transplanted(where, name, body.hashes_to_transplant)
    meta = with_headers(CommitMeta(message=body.message or ""), call.request.headers)
    wishes = wishes_of(body, meta)
    changes = call.service.changes
    return call.in_thread(lambda: ok(changes.transplant(name, hashes, target, wishes)))


def asked_by(body: ReferenceBody) -> Asked:
    """The place that a reference in a body means."""
    if isinstance(body, bodies.DetachedBody):
        return asked_beside(DETACHED, body.hash)
    check_reference_name(body.name)
    return asked_beside(body.name, body.hash)


def paged(name: str | None, token: str) -> Asked:
    """Where a page of history goes on: the token is the hash of a commit."""
    try:
        return asked_beside(name, token)
    except BadRequest as problem:
        raise BadRequest(f"{problem} [{token}]") from None


def source_name(where: str, what: str, name: str) -> str:
    """Both problems of a blank name are told, as the original tells them."""
    parameter = f"{where}.{what}.fromRefName"
    if not name.strip():
        raise BadRequest(f"{parameter}: {NAME_RULE}, {parameter}: must not be blank")
    return reference_name(parameter, name)


def transplanted(where: str, name: str, hashes: Sequence[str] | None) -> list[Asked]:
    some(f"{where}.transplant.hashesToTransplant", hashes)
    return [asked_beside(name, hash) for hash in hashes or ()]


def wishes_of(body: bodies.Bringing, meta: CommitMeta) -> Wishes:
    return Wishes(
        meta=meta,
        keys=body.rules(),
        default=body.default_key_merge_mode or MergeBehavior.NORMAL,
        dry_run=bool(body.is_dry_run),
        conflicts_as_result=bool(body.is_return_conflict_as_result),
    )


def _wanted(call: Call) -> Wanted:
    query = call.query
    return Wanted(
        min_key=query.key("min-key"),
        max_key=query.key("max-key"),
        prefix=query.key("prefix-key"),
        keys=query.keys("key"),
        filter=query.text("filter"),
        limit=query.limit("max-records"),
        token=query.text("page-token"),
    )


def _name_only(call: Call, where: str, what: str) -> str:
    asked = call.place(where)
    if asked.names_a_commit:
        raise BadRequest(f"Hashes are not allowed when fetching a reference {what}")
    return call.service.repository.default_branch if asked.name is None else asked.name


def _described(call: Call, name: str, *, fetch_all: bool) -> Response:
    found = call.service.references.get(name, fetch_all=fetch_all)
    return ok_at(answers.SingleReference(ReferenceView.described(found)), found.reference)


def _single(reference: Reference) -> Response:
    return ok_at(answers.SingleReference(ReferenceView.of(reference)), reference)


def _contents(call: Call, keys: Sequence[ContentKey]) -> Answer:
    place = call.place("getMultipleContents.ref")

    def work() -> Response:
        reference, found = call.service.contents.get_all(place, keys)
        shown = tuple(KeyedContent(key, content) for key, content in found.items())
        return ok_at(answers.Contents(shown, ReferenceView.of(reference)), reference)

    return work() if len(keys) <= _FEW else call.in_thread(work)

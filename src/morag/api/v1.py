"""REST API version 1: what older clients speak. The same services, other spellings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api import answers, bodies, v1_answers
from morag.api.answers import KeyedContent, ReferenceView
from morag.api.call import NO_CONTENT, checked, ok, ok_at
from morag.api.checks import reference_kind, reference_name, required, some
from morag.api.endpoints import FETCH, FILTER, Endpoints, Parameter
from morag.api.later import InLane
from morag.api.paths import NoSuchPath, key_in_path
from morag.api.v1_answers import EntryV1, LogEntryV1, MergedV1, ReferenceV1
from morag.api.v2 import asked_by, paged, source_name, transplanted, wishes_of
from morag.errors import BadRequest
from morag.model.content import Content, Namespace
from morag.model.meta import CommitMeta
from morag.model.names import HASH_RULE, check_hash
from morag.model.references import Reference
from morag.service.listings import Wanted
from morag.service.places import Asked, asked_beside
from morag.service.references import Described

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.api.call import Answer, Call
    from morag.api.http import Response
    from morag.model.keys import ContentKey
    from morag.model.merging import MergeResult
    from morag.model.names import ReferenceKind
    from morag.versions.commit import CommitResult

endpoint = Endpoints("/api/v1")

MAX_RECORDS: Final = Parameter("maxRecords", "How many to answer, at the most.", "integer")
PAGE_TOKEN: Final = Parameter("pageToken", "The `token` of the page before.")
REF: Final = Parameter("ref", "The reference; the default branch if absent.")
HASH_ON_REF: Final = Parameter("hashOnRef", "The commit to read; the head if absent.")
EXPECTED_HASH: Final = Parameter(
    "expectedHash", "Where the client believes the reference to be.", required=True
)


@endpoint("GET", "/config", "What this server is", gives=v1_answers.ConfigV1)
def get_config(call: Call) -> Answer:
    config = call.service.config
    return ok(v1_answers.ConfigV1(config.default_branch, config.max_supported_api_version))


@endpoint(
    "GET",
    "/trees",
    "List branches and tags",
    query=(FETCH, FILTER, MAX_RECORDS, PAGE_TOKEN),
    gives=v1_answers.ReferencesV1,
)
def list_references(call: Call) -> Answer:
    query = call.query
    all, limit = query.fetches_all(), query.limit("maxRecords")
    filter, token = query.text("filter"), query.text("pageToken")

    def work() -> Response:
        page = call.service.references.list(fetch_all=all, filter=filter, limit=limit, token=token)
        shown = tuple(map(ReferenceV1.of, page.items))
        return ok(v1_answers.ReferencesV1(page.token, shown, page.token is not None))

    return call.in_thread(work)


@endpoint("GET", "/trees/tree", "Get the default branch", gives=v1_answers.ReferenceV1)
def get_default_branch(call: Call) -> Answer:
    return _reference(call, call.service.repository.default_branch, fetch_all=False)


@endpoint(
    "POST",
    "/trees/tree",
    "Create a branch or tag",
    query=(Parameter("sourceRefName", "The reference that the hash is on."),),
    takes=bodies.ReferenceBody,
    gives=v1_answers.ReferenceV1,
    errors=(404, 409),
)
def create_reference(call: Call) -> Answer:
    where = "createReference"
    found = bodies.REFERENCE.read(call.request.body)
    body = bodies.REFERENCE.required(f"{where}.reference", found)
    source = call.query.text("sourceRefName")
    if source is not None:
        reference_name(f"{where}.sourceRefName", source)
    asked = asked_beside(source, asked_by(body).hash)
    if isinstance(body, bodies.DetachedBody):
        raise BadRequest(f"{where}.reference: must be a branch or a tag")
    kind: ReferenceKind = "BRANCH" if isinstance(body, bodies.BranchBody) else "TAG"
    references = call.service.references
    return call.in_thread(lambda: _single(references.create(kind, body.name, asked)))


@endpoint(
    "GET",
    "/trees/tree/{name}",
    "Get a branch or tag",
    query=(FETCH,),
    gives=v1_answers.ReferenceV1,
    errors=(404,),
)
def get_reference(call: Call) -> Answer:
    name = reference_name("getReferenceByName.params.refName", call.parameters["name"])
    if call.query.fetches_all():
        return call.in_thread(lambda: _reference(call, name, fetch_all=True))
    return _reference(call, name, fetch_all=False)


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
    asked = _on_reference(call, name, "getEntries.params.hashOnRef")
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
    asked = _beside(name, "getCommitLog.params.endHash", query.text("endHash"))
    oldest, token = query.text("startHash"), query.text("pageToken")
    until = None
    if oldest is not None:
        until = _beside(name, "getCommitLog.params.startHash", oldest)
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
    "PUT",
    "/trees/{kind}/{name}",
    "Point a branch or tag elsewhere",
    query=(EXPECTED_HASH,),
    takes=bodies.ReferenceBody,
    errors=(404, 409),
)
def assign_reference(call: Call) -> Answer:
    where = "assignReference"
    kind, name = _kind(call), call.parameters["name"]
    body = bodies.REFERENCE.read(call.request.body)
    reference_name(f"{where}.referenceName", name)
    target = _expected(call, where, name)
    to = asked_by(bodies.REFERENCE.required(f"{where}.assignTo", body))

    def work() -> Response:
        call.service.references.assign(kind, target, to)
        return NO_CONTENT

    return call.in_thread(work)


@endpoint(
    "DELETE",
    "/trees/{kind}/{name}",
    "Delete a branch or tag",
    query=(EXPECTED_HASH,),
    errors=(404, 409),
)
def delete_reference(call: Call) -> Answer:
    kind, name = _kind(call), call.parameters["name"]
    reference_name("deleteReference.referenceName", name)
    target = _expected(call, "deleteReference", name)

    def work() -> Response:
        call.service.references.delete(kind, target)
        return NO_CONTENT

    return call.in_thread(work)


@endpoint(
    "POST",
    "/trees/branch/{name}/commit",
    "Commit changes to keys, all or nothing",
    query=(EXPECTED_HASH,),
    takes=bodies.CommitBody,
    gives=ReferenceView,
    errors=(404, 409),
)
def commit(call: Call) -> Answer:
    where = "commitMultipleOperations"
    body = bodies.COMMIT.read(call.request.body)
    name = reference_name(f"{where}.branchName", call.parameters["name"])
    target = _expected(call, where, name)
    body = required(f"{where}.operations", body)
    some(f"{where}.operations.operations", body.operations)
    changes = body.changes(expecting=True)
    request = call.service.changes.commit_request(target, changes, body.commit_meta.meta())

    def answer(result: CommitResult) -> Response:
        return _single(Reference("BRANCH", request.branch, result.hash))

    return InLane(call.service.repository, request, answer, call.render)


@endpoint(
    "POST",
    "/trees/branch/{name}/merge",
    "Merge what another reference changed",
    query=(EXPECTED_HASH,),
    takes=bodies.MergeBodyV1,
    gives=MergedV1,
    errors=(404, 409),
)
def merge(call: Call) -> Answer:
    where = "mergeRefIntoBranch"
    body = bodies.MERGE_V1.read(call.request.body)
    name = reference_name(f"{where}.branchName", call.parameters["name"])
    target = _expected(call, where, name)
    body = required(f"{where}.merge", body)
    source = asked_beside(
        source_name(where, "merge", body.from_ref_name), check_hash(body.from_hash)
    )
    if body.keep_individual_commits:
        raise BadRequest(
            "The parameter 'keepIndividualCommits' is deprecated. Merge operations only support "
            "squashed now."
        )
    wishes = wishes_of(body, CommitMeta(message=""))
    return _merged(call, lambda: call.service.changes.merge(source, target, wishes))


@endpoint(
    "POST",
    "/trees/branch/{name}/transplant",
    "Apply commits of another reference",
    query=(EXPECTED_HASH, Parameter("message", "Replaces the message of a single commit.")),
    takes=bodies.TransplantBodyV1,
    gives=MergedV1,
    errors=(404, 409),
)
def transplant(call: Call) -> Answer:
    where = "transplantCommitsIntoBranch"
    body = bodies.TRANSPLANT_V1.read(call.request.body)
    name = reference_name(f"{where}.branchName", call.parameters["name"])
    target = _expected(call, where, name)
    body = required(f"{where}.transplant", body)
    source = source_name(where, "transplant", body.from_ref_name)
    hashes = transplanted(where, source, body.hashes_to_transplant)
    if body.keep_individual_commits is False:
        raise BadRequest(
            "The parameter 'keepIndividualCommits' is deprecated. Transplant operations only "
            "support unsquashed now."
        )
    wishes = wishes_of(body, CommitMeta(message=call.query.text("message") or ""))
    changes = call.service.changes
    return _merged(call, lambda: changes.transplant(source, hashes, target, wishes))


@endpoint(
    "GET",
    "/contents/{key}",
    "Get the content of one key",
    query=(REF, HASH_ON_REF),
    gives=Content,
    errors=(404,),
)
def get_content(call: Call) -> Answer:
    key = key_in_path(call.parameters["key"])
    asked = _asked_in_query(call, "getContent")
    _, content = call.service.contents.get(asked, key)
    return ok(content)


@endpoint(
    "POST",
    "/contents",
    "Get the contents of several keys",
    query=(REF, HASH_ON_REF),
    takes=bodies.KeysBody,
    gives=answers.Contents,
    errors=(404,),
)
def get_multiple_contents(call: Call) -> Answer:
    where = "getMultipleContents"
    body = required(f"{where}.request", bodies.KEYS.read(call.request.body))
    asked = _asked_in_query(call, where)
    keys = body.requested_keys or ()
    some(f"{where}.request.requestedKeys", keys)

    def work() -> Response:
        _, found = call.service.contents.get_all(asked, keys)
        shown = tuple(KeyedContent(key, content) for key, content in found.items())
        return ok(answers.Contents(shown))

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


@endpoint(
    "PUT",
    "/namespaces/namespace/{name}/{key}",
    "Create a namespace",
    query=(HASH_ON_REF,),
    takes=Namespace,
    gives=Namespace,
    errors=(404, 409),
)
def create_namespace(call: Call) -> Answer:
    where = "createNamespace"
    body = required(f"{where}.namespace", bodies.NAMESPACE.read(call.request.body))
    branch, _ = _namespace(call, where)
    return call.in_thread(lambda: ok(call.service.namespaces.create(branch, body)))


@endpoint(
    "GET",
    "/namespaces/namespace/{name}/{key}",
    "Get a namespace",
    query=(HASH_ON_REF,),
    gives=Namespace,
    errors=(404,),
)
def get_namespace(call: Call) -> Answer:
    name, key = _namespace(call, "getNamespace")
    asked = asked_beside(name, _plain_hash(call))
    return call.in_thread(lambda: ok(call.service.namespaces.get(asked, key)))


@endpoint(
    "DELETE",
    "/namespaces/namespace/{name}/{key}",
    "Delete a namespace that is empty",
    errors=(404, 409),
)
def delete_namespace(call: Call) -> Answer:
    branch, key = _namespace(call, "deleteNamespace")

    def work() -> Response:
        call.service.namespaces.delete(branch, key)
        return NO_CONTENT

    return call.in_thread(work)


@endpoint(
    "POST",
    "/namespaces/namespace/{name}/{key}",
    "Change the properties of a namespace",
    takes=bodies.NamespaceUpdateBody,
    errors=(404,),
)
def update_namespace(call: Call) -> Answer:
    where = "updateProperties"
    body = required(f"{where}.namespaceUpdate", bodies.NAMESPACE_UPDATE.read(call.request.body))
    branch, key = _namespace(call, where)

    def work() -> Response:
        updates, removals = body.property_updates or {}, body.property_removals or ()
        call.service.namespaces.update(branch, key, updates, removals)
        return NO_CONTENT

    return call.in_thread(work)


@endpoint(
    "GET",
    "/namespaces/{name}",
    "List namespaces",
    query=(Parameter("name", "Only this one and those below it."), HASH_ON_REF),
    gives=v1_answers.NamespacesV1,
    errors=(404,),
)
def list_namespaces(call: Call) -> Answer:
    name = reference_name("getNamespaces.refName", call.parameters["name"])
    below = call.query.text("name")
    prefix = key_in_path(below) if below else None
    asked = asked_beside(name, _plain_hash(call))
    namespaces = call.service.namespaces
    return call.in_thread(lambda: ok(v1_answers.NamespacesV1(namespaces.list(asked, prefix))))


def _reference(call: Call, name: str, *, fetch_all: bool) -> Response:
    found = call.service.references.get(name, fetch_all=fetch_all)
    return ok_at(ReferenceV1.of(found), found.reference)


def _single(reference: Reference) -> Response:
    return ok_at(ReferenceV1.of(Described(reference)), reference)


def _merged(call: Call, work: Callable[[], MergeResult]) -> Answer:
    return call.in_thread(lambda: ok(MergedV1.of(work())))


def _kind(call: Call) -> ReferenceKind:
    """A path with another word in it leads nowhere."""
    if call.parameters["kind"] not in ("branch", "tag", "BRANCH", "TAG"):
        raise NoSuchPath(call.request.path)
    return reference_kind("type", call.parameters["kind"])


def _beside(name: str | None, where: str, hash: str | None) -> Asked:
    if hash is None:
        return Asked(name)
    return checked(where, lambda text: asked_beside(name, text), hash)


def _on_reference(call: Call, name: str | None, where: str) -> Asked:
    return _beside(name, where, call.query.text("hashOnRef"))


def _asked_in_query(call: Call, where: str) -> Asked:
    name = call.query.text("ref")
    if name is not None:
        reference_name(f"{where}.ref", name)
    return _on_reference(call, name, f"{where}.hashOnRef")


def _expected(call: Call, where: str, name: str) -> Asked:
    """The expected hash is a hash and nothing else. If-Match may say it instead."""
    parameter = f"{where}.expectedHash"
    hash = call.query.text("expectedHash")
    if hash is not None:
        checked(parameter, check_hash, hash)
    asked = call.expected(name, hash)
    return asked if asked.names_a_commit else required(parameter, None)


def _plain_hash(call: Call) -> str | None:
    """Here relative parts are not understood, and the message has a form of its own."""
    hash = call.query.text("hashOnRef")
    if hash is not None:
        try:
            check_hash(hash)
        except BadRequest:
            raise BadRequest(f"{HASH_RULE} - but was: {hash}") from None
    return hash


def _namespace(call: Call, where: str) -> tuple[str, ContentKey]:
    name = reference_name(f"{where}.params.refName", call.parameters["name"])
    return name, key_in_path(call.parameters["key"])


def _diffed(which: str, text: str) -> Asked:
    name, star, hash = text.partition("*")
    return _beside(
        reference_name(f"getDiff.params.{which}", name),
        f"getDiff.params.{which.replace('Ref', 'Hash')}OnRef",
        hash if star else None,
    )

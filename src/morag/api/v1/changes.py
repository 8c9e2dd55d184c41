"""Commits, merges and transplants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api import bodies
from morag.api.call import ok
from morag.api.checks import reference_name, required, some
from morag.api.endpoints import Parameter
from morag.api.reading import options_of, source_name, transplanted
from morag.api.v1.declared import EXPECTED_HASH, endpoint, expected, single
from morag.api.v1_answers import MergedV1, ReferenceV1
from morag.errors import BadRequest
from morag.model.meta import CommitMeta
from morag.model.names import check_hash
from morag.model.references import Reference
from morag.service.places import asked_beside

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer
    from morag.model.merging import MergeResult
    from morag.versions.commit import CommitResult


@endpoint(
    "POST",
    "/trees/branch/{name}/commit",
    "Commit changes to keys, all or nothing",
    query=(EXPECTED_HASH,),
    takes=bodies.CommitBody,
    gives=ReferenceV1,
    errors=(404, 409),
)
def commit(call: Call) -> Answer:
    where = "commitMultipleOperations"
    body = bodies.COMMIT.read(call.request.body)
    name = reference_name(f"{where}.branchName", call.parameters["name"])
    target = expected(call, where, name)
    body = required(f"{where}.operations", body)
    some(f"{where}.operations.operations", body.operations)
    changes = body.changes()
    request = call.service.changes.commit_request(target, changes, body.commit_meta.meta())

    def answer(result: CommitResult) -> Response:
        return single(Reference("BRANCH", request.branch, result.hash))

    return call.in_lane(request, answer)


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
    target = expected(call, where, name)
    body = required(f"{where}.merge", body)
    source = asked_beside(
        source_name(where, "merge", body.from_ref_name), check_hash(body.from_hash)
    )
    if body.keep_individual_commits:
        raise BadRequest(
            "The parameter 'keepIndividualCommits' is deprecated. Merge operations only support "
            "squashed now."
        )
    options = options_of(body, CommitMeta(message=""), squash=True)
    return call.in_lane(call.service.changes.merge_request(source, target, options), _merged)


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
    for hash in (body and body.hashes_to_transplant) or ():
        check_hash(hash)
    name = reference_name(f"{where}.branchName", call.parameters["name"])
    target = expected(call, where, name)
    body = required(f"{where}.transplant", body)
    source = source_name(where, "transplant", body.from_ref_name)
    hashes = transplanted(where, source, body.hashes_to_transplant)
    if body.keep_individual_commits is False:
        raise BadRequest(
            "The parameter 'keepIndividualCommits' is deprecated. Transplant operations only "
            "support unsquashed now."
        )
    meta = CommitMeta(message=call.query.text("message") or "")
    options = options_of(body, meta, squash=False)
    request = call.service.changes.transplant_request(source, hashes, target, options)
    return call.in_lane(request, _merged)


def _merged(result: MergeResult) -> Response:
    return ok(MergedV1.of(result))

"""Commits, merges and transplants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api import bodies
from morag.api.call import ok
from morag.api.checks import Checks
from morag.api.endpoints import Parameter
from morag.api.reading import options_of
from morag.api.v1.answers import MergedV1, ReferenceV1
from morag.api.v1.declared import EXPECTED_HASH, endpoint, expected_hash, single
from morag.errors import BadRequest
from morag.model.meta import CommitMeta
from morag.model.references import Reference
from morag.service.places import Asked

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
    takes=bodies.CommitBodyV1,
    gives=ReferenceV1,
    errors=(404, 409),
)
def commit(call: Call) -> Answer:
    body = call.body(bodies.COMMIT_V1)
    with Checks("commitMultipleOperations") as check:
        target = _checked_target(call, check)
        check.is_there("operations", body)
        if body is not None:
            check.not_empty("operations.operations", body.operations)
    assert body is not None, "checked"
    return call.committing(target, body.changes(), body.commit_meta.meta(), _committed)


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
    body = call.body(bodies.MERGE_V1)
    with Checks("mergeRefIntoBranch") as check:
        target = _checked_target(call, check)
        check.is_there("merge", body)
        if body is not None:
            check.source_name("merge.fromRefName", body.from_ref_name)
    assert body is not None, "checked"
    source = Asked(body.from_ref_name, body.from_hash)
    if body.keep_individual_commits:
        raise BadRequest(
            "The parameter 'keepIndividualCommits' is deprecated. Merge operations only support "
            "squashed now."
        )
    options = options_of(body, CommitMeta(message=""), squash=True)
    changes = call.service.changes
    return call.near(
        lambda: call.in_lane(changes.merge_request(source, target, options), _merged),
        is_change=True,
    )


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
    body = call.body(bodies.TRANSPLANT_V1)
    with Checks("transplantCommitsIntoBranch") as check:
        target = _checked_target(call, check)
        if body is not None:
            check.source_name("transplant.fromRefName", body.from_ref_name)
            check.not_empty("transplant.hashesToTransplant", body.hashes_to_transplant)
    with Checks("transplantCommitsIntoBranch") as check:  # Reported by itself, as Nessie does.
        check.is_there("transplant", body)
    assert body is not None, "checked"
    source = body.from_ref_name
    hashes = [Asked(source, hash) for hash in body.hashes_to_transplant or ()]
    if body.keep_individual_commits is False:
        raise BadRequest(
            "The parameter 'keepIndividualCommits' is deprecated. Transplant operations only "
            "support unsquashed now."
        )
    meta = CommitMeta(message=call.query.text("message") or "")
    options = options_of(body, meta, squash=False)
    changes = call.service.changes
    return call.before_lane(
        lambda: call.in_lane(changes.transplant_request(source, hashes, target, options), _merged)
    )


def _checked_target(call: Call, check: Checks) -> Asked:
    name = call.parameters["name"]
    check.name("branchName", name)
    return Asked(name, expected_hash(call, check))


def _committed(branch: str, result: CommitResult) -> Response:
    return single(Reference("BRANCH", branch, result.hash))


def _merged(result: MergeResult) -> Response:
    return ok(MergedV1.of(result))

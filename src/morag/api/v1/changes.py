"""Endpoints for commits, merges and transplants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api import actions
from morag.api.call import ok
from morag.api.checks import Checks
from morag.api.endpoints import Parameter
from morag.api.v1 import structs
from morag.api.v1.parameters import EXPECTED_HASH, checked_target, endpoint, single
from morag.api.v1.structs import MergedV1, ReferenceV1
from morag.errors import BadRequest
from morag.model.meta import CommitMeta
from morag.model.references import Reference
from morag.service.ref_resolution import RequestedRef

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer
    from morag.model.merging import MergeResult
    from morag.model.results import CommitResult


@endpoint(
    "POST",
    "/trees/branch/{name}/commit",
    "Commit changes to keys, all or nothing",
    query=(EXPECTED_HASH,),
    takes=structs.CommitBodyV1,
    gives=ReferenceV1,
    errors=(404, 409),
)
def commit(call: Call) -> Answer:
    body = call.body(structs.COMMIT_V1)
    with Checks("commitMultipleOperations") as check:
        target = checked_target(call, check, "branchName")
        check.operations(body)
    assert body is not None, "checked"
    return actions.commit(call, target, body.changes(), body.commit_meta.meta(), _committed)


@endpoint(
    "POST",
    "/trees/branch/{name}/merge",
    "Merge the changes of another reference",
    query=(EXPECTED_HASH,),
    takes=structs.MergeBodyV1,
    gives=MergedV1,
    errors=(404, 409),
)
def merge(call: Call) -> Answer:
    body = call.body(structs.MERGE_V1)
    with Checks("mergeRefIntoBranch") as check:
        target = checked_target(call, check, "branchName")
        check.is_there("merge", body)
        if body is not None:
            check.source_name("merge.fromRefName", body.from_ref_name)
    assert body is not None, "checked"
    source = RequestedRef.of(body.from_ref_name, body.from_hash)
    if body.keep_individual_commits:
        raise BadRequest(
            "The parameter 'keepIndividualCommits' is deprecated. Merge operations only support "
            "squashed now."
        )
    options = body.options(CommitMeta(message=""), body.key_merge_modes, squash=True)
    return actions.merge(call, source, target, options, _merged)


@endpoint(
    "POST",
    "/trees/branch/{name}/transplant",
    "Apply commits of another reference",
    query=(EXPECTED_HASH, Parameter("message", "Replaces the message of a single commit.")),
    takes=structs.TransplantBodyV1,
    gives=MergedV1,
    errors=(404, 409),
)
def transplant(call: Call) -> Answer:
    body = call.body(structs.TRANSPLANT_V1)
    with Checks("transplantCommitsIntoBranch") as check:
        target = checked_target(call, check, "branchName")
        if body is not None:
            check.source_name("transplant.fromRefName", body.from_ref_name)
            check.not_empty("transplant.hashesToTransplant", body.hashes_to_transplant)
    with Checks("transplantCommitsIntoBranch") as check:  # Reported separately, as Nessie does.
        check.is_there("transplant", body)
    assert body is not None, "checked"
    hashes = body.hashes_to_transplant or ()
    if body.keep_individual_commits is False:
        raise BadRequest(
            "The parameter 'keepIndividualCommits' is deprecated. Transplant operations only "
            "support unsquashed now."
        )
    meta = CommitMeta(message=call.query.text("message") or "")
    options = body.options(meta, body.key_merge_modes, squash=False)
    return actions.transplant(call, body.from_ref_name, hashes, target, options, _merged)


def _committed(branch: str, result: CommitResult) -> Response:
    return single(Reference("BRANCH", branch, result.hash))


def _merged(result: MergeResult) -> Response:
    return ok(MergedV1.of(result))

"""Endpoints for commits, merges and transplants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from morag.api import actions, body_readers
from morag.api.call import ok, ok_at
from morag.api.checks import Checks
from morag.api.metadata_headers import with_headers
from morag.api.v2.parameters import endpoint
from morag.model.merging import MergeResult
from morag.model.meta import CommitMeta
from morag.model.references import Reference
from morag.rest import requests, responses
from morag.rest.responses import AddedContent, ReferenceView
from morag.service.ref_resolution import RequestedRef

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer
    from morag.model.results import CommitResult


@endpoint(
    "POST",
    "/trees/{branch}/history/commit",
    "Commit changes to keys, all or nothing",
    takes=requests.CommitBody,
    gives=responses.Committed,
    errors=(404, 409),
)
def commit(call: Call) -> Answer:
    body = call.body(body_readers.COMMIT)
    with Checks("commitMultipleOperations") as check:
        branch = check.ref_spec("branch", call.parameters["branch"])
        check.operations(body)
    assert body is not None, "checked"
    target = call.target(branch)
    meta = with_headers(body.commit_meta.meta(), call.request.headers)
    return actions.commit(call, target, body.changes(), meta, _committed)


@endpoint(
    "POST",
    "/trees/{branch}/history/merge",
    "Merge the changes of another reference",
    takes=requests.MergeBody,
    gives=MergeResult,
    errors=(404, 409),
)
def merge(call: Call) -> Answer:
    body = call.body(body_readers.MERGE)
    with Checks("mergeRefIntoBranch") as check:
        branch = check.ref_spec("branch", call.parameters["branch"])
        check.is_there("merge", body)
        if body is not None:
            check.source_name("merge.fromRefName", body.from_ref_name)
            check.no_empty_text("merge.message", body.message)
    assert body is not None, "checked"
    target, source = call.target(branch), RequestedRef.of(body.from_ref_name, body.from_hash)
    meta = CommitMeta(message="") if body.commit_meta is None else body.commit_meta.meta()
    if not meta.message and body.message is not None:
        meta = msgspec.structs.replace(meta, message=body.message)
    meta = with_headers(meta, call.request.headers)
    options = body.options(meta, body.key_merge_modes, squash=True)
    return actions.merge(call, source, target, options, ok)


@endpoint(
    "POST",
    "/trees/{branch}/history/transplant",
    "Apply commits of another reference",
    takes=requests.TransplantBody,
    gives=MergeResult,
    errors=(404, 409),
)
def transplant(call: Call) -> Answer:
    body = call.body(body_readers.TRANSPLANT)
    with Checks("transplantCommitsIntoBranch") as check:
        branch = check.ref_spec("branch", call.parameters["branch"])
        if body is not None:
            check.source_name("transplant.fromRefName", body.from_ref_name)
            check.no_empty_text("transplant.message", body.message)
            check.not_empty("transplant.hashesToTransplant", body.hashes_to_transplant)
    with Checks("transplantCommitsIntoBranch") as check:  # Reported separately, as Nessie does.
        check.is_there("transplant", body)
    assert body is not None, "checked"
    target, hashes = call.target(branch), body.hashes_to_transplant or ()
    meta = with_headers(CommitMeta(message=body.message or ""), call.request.headers)
    options = body.options(meta, body.key_merge_modes, squash=False)
    return actions.transplant(call, body.from_ref_name, hashes, target, options, ok)


def _committed(name: str, result: CommitResult) -> Response:
    branch = Reference("BRANCH", name, result.hash)
    added = tuple(AddedContent(key, id) for key, id in result.added.items())
    return ok_at(responses.Committed(ReferenceView.of(branch), added or None), branch)

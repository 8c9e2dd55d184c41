"""Commits, merges and transplants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from morag.api import bodies
from morag.api.call import ok, ok_at
from morag.api.checks import Checks
from morag.api.headers import with_headers
from morag.api.reading import options_of
from morag.api.v2 import answers
from morag.api.v2.answers import AddedContent, ReferenceView
from morag.api.v2.declared import endpoint
from morag.model.merging import MergeResult
from morag.model.meta import CommitMeta
from morag.model.references import Reference
from morag.service.places import Asked

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer
    from morag.versions.commit import CommitResult


@endpoint(
    "POST",
    "/trees/{branch}/history/commit",
    "Commit changes to keys, all or nothing",
    takes=bodies.CommitBody,
    gives=answers.Committed,
    errors=(404, 409),
)
def commit(call: Call) -> Answer:
    body = call.body(bodies.COMMIT)
    with Checks("commitMultipleOperations") as check:
        check.ref_spec("branch", call.parameters["branch"])
        check.is_there("operations", body)
        if body is not None:
            check.not_empty("operations.operations", body.operations)
    assert body is not None, "checked"
    target = call.target("branch")
    meta = with_headers(body.commit_meta.meta(), call.request.headers)
    return call.committing(target, body.changes(), meta, _committed)


@endpoint(
    "POST",
    "/trees/{branch}/history/merge",
    "Merge what another reference changed",
    takes=bodies.MergeBody,
    gives=MergeResult,
    errors=(404, 409),
)
def merge(call: Call) -> Answer:
    body = call.body(bodies.MERGE)
    with Checks("mergeRefIntoBranch") as check:
        check.ref_spec("branch", call.parameters["branch"])
        check.is_there("merge", body)
        if body is not None:
            check.source_name("merge.fromRefName", body.from_ref_name)
            check.no_empty_text("merge.message", body.message)
    assert body is not None, "checked"
    target, source = call.target("branch"), Asked(body.from_ref_name, body.from_hash or "")
    meta = CommitMeta(message="") if body.commit_meta is None else body.commit_meta.meta()
    if not meta.message and body.message is not None:
        meta = msgspec.structs.replace(meta, message=body.message)
    options = options_of(body, with_headers(meta, call.request.headers), squash=True)
    changes = call.service.changes
    return call.near(
        lambda: call.in_lane(changes.merge_request(source, target, options), ok),
        source,
        target,
        is_change=True,
    )


@endpoint(
    "POST",
    "/trees/{branch}/history/transplant",
    "Apply commits of another reference",
    takes=bodies.TransplantBody,
    gives=MergeResult,
    errors=(404, 409),
)
def transplant(call: Call) -> Answer:
    body = call.body(bodies.TRANSPLANT)
    with Checks("transplantCommitsIntoBranch") as check:
        check.ref_spec("branch", call.parameters["branch"])
        if body is not None:
            check.source_name("transplant.fromRefName", body.from_ref_name)
            check.no_empty_text("transplant.message", body.message)
            check.not_empty("transplant.hashesToTransplant", body.hashes_to_transplant)
    with Checks("transplantCommitsIntoBranch") as check:  # Reported by itself, as Nessie does.
        check.is_there("transplant", body)
    assert body is not None, "checked"
    target, name = call.target("branch"), body.from_ref_name
    hashes = [Asked(name, hash) for hash in body.hashes_to_transplant or ()]
    meta = with_headers(CommitMeta(message=body.message or ""), call.request.headers)
    options = options_of(body, meta, squash=False)
    changes = call.service.changes
    return call.before_lane(
        lambda: call.in_lane(changes.transplant_request(name, hashes, target, options), ok)
    )


def _committed(name: str, result: CommitResult) -> Response:
    branch = Reference("BRANCH", name, result.hash)
    added = tuple(AddedContent(key, id) for key, id in result.added.items())
    return ok_at(answers.Committed(ReferenceView.of(branch), added or None), branch)

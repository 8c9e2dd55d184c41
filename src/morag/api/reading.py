"""What both versions read from a request in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api import bodies
from morag.api.checks import reference_name, some
from morag.errors import BadRequest
from morag.model.merging import MergeBehavior, MergeOptions
from morag.model.names import NAME_RULE, check_reference_name
from morag.service.places import DETACHED, Asked, asked_beside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.api.bodies import ReferenceBody
    from morag.model.meta import CommitMeta


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


def options_of(body: bodies.Bringing, meta: CommitMeta, *, squash: bool) -> MergeOptions:
    return MergeOptions(
        meta=meta,
        squash=squash,
        keys=body.rules(),
        default=body.default_key_merge_mode or MergeBehavior.NORMAL,
        dry_run=bool(body.is_dry_run),
        conflicts_as_result=bool(body.is_return_conflict_as_result),
    )

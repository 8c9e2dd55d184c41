"""What both versions read from a request in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api import bodies
from morag.model.merging import MergeBehavior, MergeOptions
from morag.service.places import DETACHED, Asked

if TYPE_CHECKING:
    from morag.api.bodies import ReferenceBody
    from morag.model.meta import CommitMeta


def asked_by(body: ReferenceBody) -> Asked:
    """The place that a reference in a body means."""
    name = DETACHED if isinstance(body, bodies.DetachedBody) else body.name
    return Asked(name, body.hash or "")


def options_of(body: bodies.AnyBringing, meta: CommitMeta, *, squash: bool) -> MergeOptions:
    return MergeOptions(
        meta=meta,
        squash=squash,
        keys=tuple(mode.rule() for mode in body.key_merge_modes or ()),
        default=body.default_key_merge_mode or MergeBehavior.NORMAL,
        dry_run=bool(body.is_dry_run),
        conflicts_as_result=bool(body.is_return_conflict_as_result),
    )

"""The lane of creations and drops of references, so that many of them cost one write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import Struct

from morag.errors import ReferenceConflict
from morag.logic.internal_refs import REFS
from morag.logic.reference_batches import Change, Creation, Drop
from morag.logic.references import RefMoved
from morag.model.conflicts import Conflict, ConflictType
from morag.model.names import ReferenceKind, full_name
from morag.model.references import Reference
from morag.versions.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from morag.format.records import ObjId, Ref
    from morag.logic.references import References
    from morag.persist.persist import Persist
    from morag.versions.known_heads import KnownHeads
    from morag.versions.syncs import Syncs
    from morag.versions.tickets import Spawn, Ticket

_MOST_TOGETHER: Final = 32
"""A batch holds the lock of all references, and its statement grows with each change."""


class ReferenceRequest(Struct, frozen=True):
    """A creation or a drop, checked and ready for the lane."""

    kind: ReferenceKind
    short_name: str
    change: Change

    shares_batch: ClassVar = True
    operations: ClassVar = 1

    @classmethod
    def to_create(
        cls,
        kind: ReferenceKind,
        name: str,
        at: ObjId,
        extended_info: ObjId | None = None,
        who: str = "",
    ) -> ReferenceRequest:
        other_kind = full_name("TAG" if kind == "BRANCH" else "BRANCH", name)
        change = Creation(full_name(kind, name), other_kind, at, extended_info, who)
        return cls(kind, name, change)

    @classmethod
    def to_drop(
        cls, kind: ReferenceKind, name: str, expected: ObjId, who: str = ""
    ) -> ReferenceRequest:
        return cls(kind, name, Drop(full_name(kind, name), expected, who))

    def result(self, ref: Ref) -> Reference:
        return Reference(self.kind, self.short_name, ref.pointer.hex())

    def failure(self, error: Exception) -> Exception:
        if isinstance(error, RefMoved) and isinstance(self.change, Drop):
            expected, found = self.change.expected.hex(), error.ref.pointer.hex()
            return unexpected_hash(self.short_name, expected, found)
        return error


class ReferenceLane:
    """All creations and drops of this process, in order of arrival."""

    def __init__(
        self,
        persist: Persist,
        references: References,
        heads: KnownHeads,
        syncs: Syncs,
        let_others_run: Callable[[], None],
    ) -> None:
        self._persist = persist
        self._references = references
        self._heads = heads
        self.syncs = syncs if persist.swaps_together_quickly else None
        self._lane = Lane(self, REFS, _MOST_TOGETHER, let_others_run)

    def run(self, request: ReferenceRequest) -> Any:
        """The created or dropped reference, when the change is durable."""
        return self._lane.run(request)

    def start(
        self, request: ReferenceRequest, spawn: Spawn, finished: Callable[[Ticket], None]
    ) -> None:
        """Make the change without waiting for it; see `Lane.start`."""
        self._lane.start(request, spawn, finished)

    def write(self, branch: str, batch: Sequence[Ticket], *, may_wait: bool) -> bool:
        requests: list[ReferenceRequest] = [ticket.request for ticket in batch]
        for request in requests:
            if isinstance(request.change, Drop):
                self._heads.forget(request.change.name)
        changes = [request.change for request in requests]
        outcomes: Sequence[Ref | Exception] = (
            self._references.change_all(changes)
            if may_wait
            else self._references.change_all_at_once(changes)
        )
        for ticket, request, outcome in zip(batch, requests, outcomes, strict=True):
            if isinstance(outcome, Exception):
                ticket.fail(request.failure(outcome))
            else:
                ticket.succeed(request.result(outcome))
        return not may_wait and self._persist.needs_sync


def unexpected_hash(name: str, expected: str, found: str) -> ReferenceConflict:
    text = f"named-reference '{name}' is not at expected hash '{expected}', but at '{found}'"
    return ReferenceConflict.of([Conflict(ConflictType.UNEXPECTED_HASH, None, text)])

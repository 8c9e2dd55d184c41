"""Compares two states of a content."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.spark.content_state import NO_SNAPSHOT, NOTHING, Size, State
from morag.spark.schema_changes import schema_changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from morag.spark.content_state import SnapshotInfo

_WRITTEN_BY_CATALOG: Final = frozenset({"property nessie.commit.id"})
"""Properties that Iceberg's NessieCatalog writes with every change for its own use."""


class Comparison(Struct, frozen=True, kw_only=True):
    """`history` is the relation of the snapshots: SAME; AHEAD, if the new one descends from the old
    one; BEHIND, if the old one descends from the new one; DIVERGED, if both descend from a third
    one; UNRELATED, if the metadata has no common ancestor. `operations` are the operations from the
    old snapshot, or from the common ancestor, to the new one, in order.
    """

    schema_changes: tuple[str, ...] = ()
    other_changes: tuple[str, ...] = ()
    history: str | None = None
    operations: tuple[str, ...] = ()
    old: Size = Size()
    new: Size = Size()


def compare(before: State | None, after: State | None) -> Comparison:
    """None means that a side lacks the content, or that it cannot be read."""
    if before is None or after is None:
        return Comparison(old=(before or NOTHING).size, new=(after or NOTHING).size)
    history, operations = _history(before, after)
    schema: tuple[str, ...] = ()
    if before.schema is not None and after.schema is not None:
        schema = tuple(schema_changes(before.schema, after.schema))
    return Comparison(
        schema_changes=schema,
        other_changes=tuple(_fact_changes(before.facts, after.facts)),
        history=history,
        operations=operations,
        old=before.size,
        new=after.size,
    )


def _fact_changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in sorted((before.keys() | after.keys()) - _WRITTEN_BY_CATALOG):
        old, new = before.get(name), after.get(name)
        if old is None:
            yield f"added {name}: {new}"
        elif new is None:
            yield f"dropped {name}: {old}"
        elif old != new:
            yield f"changed {name} from {old} to {new}"


def _history(before: State, after: State) -> tuple[str | None, tuple[str, ...]]:
    if before.snapshot_id is None or after.snapshot_id is None:
        return None, ()
    if before.snapshot_id == after.snapshot_id:
        return "SAME", ()
    if after.snapshot_id == NO_SNAPSHOT:
        return "BEHIND", ()
    known = {**before.snapshots, **after.snapshots}
    old, new = _ancestors(before.snapshot_id, known), _ancestors(after.snapshot_id, known)
    shared = next((id for id in new if id in old), None)
    since = list(takewhile(lambda snapshot: snapshot != shared, new))
    operations = tuple(known[id].operation or "unknown" for id in reversed(since))
    if shared == before.snapshot_id or before.snapshot_id == NO_SNAPSHOT:
        return "AHEAD", operations
    if shared == after.snapshot_id:
        return "BEHIND", ()
    return ("UNRELATED", ()) if shared is None else ("DIVERGED", operations)


def _ancestors(id: int, known: Mapping[int, SnapshotInfo]) -> dict[int, None]:
    """A snapshot and its ancestors, newest first, in a form that is fast to search."""
    found: dict[int, None] = {}
    at: int | None = id
    while at is not None and at in known and at not in found:
        found[at] = None
        at = known[at].parent
    return found

"""Two states of a content side by side."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.spark.schema_changes import schema_changes
from morag.spark.states import NO_SNAPSHOT, NOTHING, Size, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from morag.spark.states import Made

_OF_THE_CATALOG: Final = frozenset({"property nessie.commit.id"})
"""What Iceberg's NessieCatalog notes with every change, for itself."""


class Comparison(Struct, frozen=True, kw_only=True):
    """`history` says how the snapshots are related: SAME; AHEAD, if the new one goes on from the
    old one; BEHIND, if it is the other way round; DIVERGED, if both go on from a third one;
    UNRELATED, if there is none that the metadata still knows. `operations` are what happened from
    the old one, or from the third one, to the new one, in this order.
    """

    schema_changes: tuple[str, ...] = ()
    other_changes: tuple[str, ...] = ()
    history: str | None = None
    operations: tuple[str, ...] = ()
    old: Size = Size()
    new: Size = Size()


def compared(before: State | None, after: State | None) -> Comparison:
    """None stands for a side that has no such content, or none that can be read."""
    if before is None or after is None:
        return Comparison(old=(before or NOTHING).size, new=(after or NOTHING).size)
    history, operations = _history(before, after)
    schema: tuple[str, ...] = ()
    if before.schema is not None and after.schema is not None:
        schema = tuple(schema_changes(before.schema, after.schema))
    return Comparison(
        schema_changes=schema,
        other_changes=tuple(_facts(before.facts, after.facts)),
        history=history,
        operations=operations,
        old=before.size,
        new=after.size,
    )


def _facts(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in sorted((before.keys() | after.keys()) - _OF_THE_CATALOG):
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
    old, new = _line(before.snapshot_id, known), _line(after.snapshot_id, known)
    met = next((id for id in new if id in old), None)
    since = list(takewhile(lambda snapshot: snapshot != met, new))
    operations = tuple(known[id].operation or "unknown" for id in reversed(since))
    if met == before.snapshot_id or before.snapshot_id == NO_SNAPSHOT:
        return "AHEAD", operations
    if met == after.snapshot_id:
        return "BEHIND", ()
    return ("UNRELATED", ()) if met is None else ("DIVERGED", operations)


def _line(id: int, known: Mapping[int, Made]) -> dict[int, None]:
    """A snapshot and those that it goes on from, newest first, and quick to search."""
    line: dict[int, None] = {}
    at: int | None = id
    while at is not None and at in known and at not in line:
        line[at] = None
        at = known[at].parent
    return line

"""Checks single rows of a store: readable, with the right id, in the right order.

`morag admin check` and `morag spark fsck` scan all rows with `examined`. It gives what the next
steps need: the commits, which `line_check.py` compares along the history, and which objects are
there, to be joined with the pointers to them (`pointer_checks.py`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from morag.errors import RepositoryCorrupt
from morag.format import object_codec as codec
from morag.format.damage import UNREADABLE
from morag.format.ids import ID_BYTES
from morag.format.objects import KINDS, Commit, Index, IndexSegments, RefObj, Value
from morag.format.rows import UNREADABLE_KIND
from morag.index.directory import segment_of
from morag.logic.commit_graph import GraphCommit
from morag.logic.findings import Finding, kind_name
from morag.logic.pointer_checks import (
    ANY,
    DAMAGED,
    NOT_UNDERSTOOD,
    Present,
    creation_detail,
    span_detail,
    value_detail,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from morag.format.objects import Obj, Stripe
    from morag.format.records import ObjId, Row

MISSING: Final = "the object is missing"


class Examined(Struct, frozen=True, gc=False):
    """What one row says. `present` is None for an id of unusual length, which only custom objects
    have."""

    present: Present | None
    finding: Finding | None = None
    commit: GraphCommit | None = None
    reference: str = ""
    """The name in a record of a reference, which may be that of a former reference."""


def examined(row: Row) -> Examined:
    """The id of a commit is not checked here: for some, that needs the parent."""
    if row.kind == UNREADABLE_KIND:
        return Examined(_present(row.id, DAMAGED), Finding(row.id, "is damaged"))
    if row.kind not in KINDS:
        return Examined(_present(row.id, NOT_UNDERSTOOD))
    try:
        obj = codec.decode(row)
        return _EXAMINERS.get(type(obj), _plain)(obj)
    except (RepositoryCorrupt, *UNREADABLE) as damage:
        finding = Finding(row.id, short(row.id, damage), kind_name(row.kind))
        return Examined(_present(row.id, DAMAGED), finding)


def short(id: ObjId, damage: Exception) -> str:
    """The message of an error about an object, without its id and without advice."""
    return str(damage).removeprefix(f"Object {id.hex()} ").partition(";")[0]


def check_pointers_of(commit: Commit) -> None:
    """Refuse pointers that cannot be ids, and stripes that overlap."""
    ids = [*commit.tail, *commit.merge_parents]
    if commit.reference_index is not None:
        ids.append(commit.reference_index)
    _check_ids(ids)
    _check_stripes(commit.stripes)


def _commit(commit: Commit) -> Examined:
    check_pointers_of(commit)
    node = GraphCommit(commit.id, commit.parent, commit.seq, commit.merge_parents)
    return Examined(Present(commit.id, Commit.kind_letter), commit=node)


def _index(index: Index) -> Examined:
    segment = segment_of(index)
    segment.check_order()
    detail = span_detail(segment.keys[0], segment.keys[-1]) if segment else ANY
    return Examined(Present(index.id, Index.kind_letter, detail))


def _segments(segments: IndexSegments) -> Examined:
    _check_stripes(segments.memo.form)
    return Examined(Present(segments.id, IndexSegments.kind_letter))


def _value(value: Value) -> Examined:
    return Examined(Present(value.id, Value.kind_letter, value_detail(value)))


def _reference(record: RefObj) -> Examined:
    present = Present(
        record.id, RefObj.kind_letter, creation_detail(record.created_micros, record.extended_info)
    )
    return Examined(present, reference=record.name)


def _plain(obj: Obj) -> Examined:
    return Examined(Present(obj.id, obj.kind_letter))


_EXAMINERS: Final[dict[type[Obj], Callable[[Any], Examined]]] = {
    Commit: _commit,
    Index: _index,
    IndexSegments: _segments,
    Value: _value,
    RefObj: _reference,
}


def _present(id: ObjId, kind: str) -> Present | None:
    return Present(id, kind) if len(id) == ID_BYTES else None


def _check_stripes(stripes: Sequence[Stripe]) -> None:
    _check_ids([stripe.segment for stripe in stripes])
    if any(stripe.last < stripe.first for stripe in stripes) or any(
        after.first <= before.last for before, after in pairwise(stripes)
    ):
        raise ValueError("has the stripes of its index out of order")


def _check_ids(ids: Sequence[ObjId]) -> None:
    if set(map(len, ids)) - {ID_BYTES}:
        raise ValueError("points to something that is not an id")

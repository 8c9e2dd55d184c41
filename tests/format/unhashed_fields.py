"""The fields of a commit's row that its id does not cover: damage to them goes unnoticed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import RepositoryCorrupt
from morag.format import object_codec as codec
from morag.format.damage import UNREADABLE
from morag.format.index_entries import ADD, REMOVE, is_current
from morag.format.objects import Commit
from morag.format.rows import decode_row
from morag.index.segment import Segment

if TYPE_CHECKING:
    from morag.format.records import ObjId

UNCOVERED: Final = {
    "created": "when the commit was stored; not shown if the headers have a date",
    "seq": "the length of the history; the walk along first parents relies on it",
    "tail": "ancestors beyond the parent, with which a log reads several commits at once",
    "merge parents": "shown in the log, and used to find merge bases",
    "kind": "whether users may see the commit",
    "reference index": "which stripes the commit has inherited",
    "inherited entries": "keys of earlier commits that are not in stripes yet",
    "removed value": "the old value of a removed key; never read",
    "header bounds": "where the name of a header ends and its value begins",
}
"""The fields of a commit's row that are not part of its id, and their purposes."""


def uncovered(id: ObjId, right: bytes, wrong: bytes) -> set[str]:
    """The fields of `UNCOVERED` that differ; `nothing` if all are equal; empty if others differ."""
    try:
        before, after = (codec.decode(decode_row(id, data)) for data in (right, wrong))
        if not isinstance(before, Commit) or not isinstance(after, Commit):
            return {"nothing"} if before == after else set()
        entries = [dict(Segment.decode(c.incremental).items()) for c in (before, after)]
    except (RepositoryCorrupt, *UNREADABLE):
        return set()
    own = [{k: op for k, op in some.items() if is_current(op)} for some in entries]
    joined = [
        "".join((c.message, *(part for n, vs in c.headers for part in (n, *vs))))
        for c in (before, after)
    ]
    if _hashed(own[0]) != _hashed(own[1]) or joined[0] != joined[1]:
        return set()
    if before.parent != after.parent or before.incomplete != after.incomplete:
        return set()
    found = {
        "created": before.created_micros != after.created_micros,
        "seq": before.seq != after.seq,
        "tail": before.tail != after.tail,
        "merge parents": before.merge_parents != after.merge_parents,
        "kind": before.kind != after.kind,
        "reference index": (before.reference_index, before.stripes)
        != (after.reference_index, after.stripes),
        "inherited entries": entries[0].items() - own[0].items()
        != entries[1].items() - own[1].items(),
        "removed value": own[0] != own[1],
        "header bounds": before.headers != after.headers or before.message != after.message,
    }
    assert found.keys() == UNCOVERED.keys()
    return {name for name, differs in found.items() if differs} or {"nothing"}


def _hashed(own: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """The parts of the entries that the id covers: of a remove, the type and the content id."""
    assert all(op[:1] in (ADD, REMOVE) for op in own.values())
    return {key: op if op[:1] == ADD else op[:2] + op[-16:] for key, op in own.items()}

"""Committing a batch once, however often it is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from morag.client import OutcomeUnknown
from morag.client.places import NO_ANCESTOR
from morag.errors import ReferenceConflict
from morag.model.content import type_name
from morag.model.operations import Put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.client import Client
    from morag.model.meta import CommitMeta
    from morag.model.operations import Delete
    from morag.versions.repository import Repository

QUERY: Final = "morag-spark-query"
BATCH: Final = "morag-spark-batch"
_TRIES: Final = 20


class Batch(Struct, frozen=True):
    """A batch of a query, as the properties of its commit name it.

    Batches are numbered as they follow each other, and Spark repeats only the last one.
    """

    query: str
    number: int

    def marked(self, meta: CommitMeta) -> CommitMeta:
        marks = {QUERY: (self.query,), BATCH: (str(self.number),)}
        return replace(meta, properties={**meta.properties, **marks})


def commit_once(
    catalog: Repository | Client,
    branch: str,
    operations: Sequence[Put | Delete],
    meta: CommitMeta,
    batch: Batch | None,
    expected: str | None = None,
) -> str | None:
    """Commit the operations unless the batch is on the branch already; returns the new hash.

    A process that was thought dead may still commit the same batch while we look. It changes the
    same keys, and we expect the head that we looked at: so one of the two meets a conflict, looks
    again, and finds the other's.
    """
    meta = meta if batch is None else batch.marked(meta)
    searched: str | None = None
    for left in range(_TRIES, 0, -1):
        head = catalog.references.get(branch).hash
        if batch is not None and is_committed(catalog, head, batch, searched):
            return None
        searched = head
        try:
            identified = _with_ids(catalog, expected or head, operations)
            return catalog.commit(branch, identified, meta, expected=expected or head).hash
        except ReferenceConflict:
            moved = catalog.references.get(branch).hash != head
            if left == 1 or not moved or (expected is not None and batch is None):
                raise
        except OutcomeUnknown:
            if left == 1 or batch is None:
                raise
    raise AssertionError("the last try returns or raises")


def is_committed(
    catalog: Repository | Client, head: str, batch: Batch, searched: str | None = None
) -> bool:
    """Whether the batch is among the commits since the one of its query before it.

    A query's first batch is looked for in the whole log, since nothing tells when its query began;
    but only once, if `searched` is a head that it was not found at.
    """
    if head == NO_ANCESTOR:
        return False
    for entry in catalog.history.log(f"@{head}", until=searched):
        number = _number(entry.meta, batch.query)
        if number is not None and number <= batch.number:
            return number == batch.number
    return False


def _number(meta: CommitMeta, query: str) -> int | None:
    """Which batch of the query a commit is. Others may use our names for what they like."""
    if meta.properties.get(QUERY) != (query,):
        return None
    match meta.properties.get(BATCH):
        case (number,) if number.isdecimal():
            return int(number)
        case _:
            return None


def _with_ids(
    catalog: Repository | Client, at: str, operations: Sequence[Put | Delete]
) -> list[Put | Delete]:
    """What changes a key carries the id of the content that is there."""
    unknown = [op.key for op in operations if isinstance(op, Put) and op.content.id is None]
    there = catalog.contents.get_all(f"@{at}", unknown) if unknown and at != NO_ANCESTOR else {}
    return [
        replace(op, content=replace(op.content, id=there[op.key].id))
        if isinstance(op, Put)
        and op.key in there
        and type_name(op.content) == type_name(there[op.key])
        else op
        for op in operations
    ]

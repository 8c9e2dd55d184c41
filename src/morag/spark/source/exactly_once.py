"""Commits a batch exactly once, however often it is attempted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from morag.client import OutcomeUnknown
from morag.errors import ReferenceConflict
from morag.model.content import type_name
from morag.model.names import NO_ANCESTOR_HASH
from morag.model.operations import Put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.catalog import Catalog
    from morag.model.meta import CommitMeta
    from morag.model.operations import Delete

QUERY: Final = "morag-spark-query"
BATCH: Final = "morag-spark-batch"
_ATTEMPTS: Final = 20


class Batch(Struct, frozen=True):
    """A batch of a query, identified by the properties of its commit.

    Batches have ascending numbers, and Spark repeats only the last one.
    """

    query: str
    number: int

    def marked(self, meta: CommitMeta) -> CommitMeta:
        marks = {QUERY: (self.query,), BATCH: (str(self.number),)}
        return replace(meta, properties={**meta.properties, **marks})


def commit_once(
    catalog: Catalog,
    branch: str,
    operations: Sequence[Put | Delete],
    meta: CommitMeta,
    batch: Batch | None,
    expected: str | None = None,
) -> str | None:
    """Commit the operations unless the batch is on the branch already; returns the new hash.

    A process that was presumed dead may still commit the same batch during the search. It changes
    the same keys, and our expected hash is the head that we searched: so one of the two gets a
    conflict, searches again, and finds the commit of the other.
    """
    meta = meta if batch is None else batch.marked(meta)
    searched: str | None = None
    for left in range(_ATTEMPTS, 0, -1):
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
    raise AssertionError("the last attempt returns or raises")


def is_committed(catalog: Catalog, head: str, batch: Batch, searched: str | None = None) -> bool:
    """Whether the batch is among the commits since the previous batch of its query.

    A query's first batch is searched in the whole log, because the start of the query is unknown;
    with `searched`, a head at which it was not found, only above that.
    """
    if head == NO_ANCESTOR_HASH:
        return False
    for entry in catalog.history.log(f"@{head}", until=searched):
        number = _number(entry.meta, batch.query)
        if number is not None and number <= batch.number:
            return number == batch.number
    return False


def _number(meta: CommitMeta, query: str) -> int | None:
    """The batch number of a commit of the query. Other programs may use the same properties."""
    if meta.properties.get(QUERY) != (query,):
        return None
    match meta.properties.get(BATCH):
        case (number,) if number.isdecimal():
            return int(number)
        case _:
            return None


def _with_ids(catalog: Catalog, at: str, operations: Sequence[Put | Delete]) -> list[Put | Delete]:
    """An operation that changes a key gets the id of its current content."""
    unknown = [op.key for op in operations if isinstance(op, Put) and op.content.id is None]
    stored = (
        catalog.contents.get_all(f"@{at}", unknown) if unknown and at != NO_ANCESTOR_HASH else {}
    )
    return [
        replace(op, content=replace(op.content, id=stored[op.key].id))
        if isinstance(op, Put)
        and op.key in stored
        and type_name(op.content) == type_name(stored[op.key])
        else op
        for op in operations
    ]

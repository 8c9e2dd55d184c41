"""Joins the pointers of a store with the objects that are there.

Executors write both as packed bytes (`logic/pointer_checks.py`), hundreds in a row, in buckets by
the first byte of the ids. Spark brings the rows of a bucket together, and a task joins them with a
dict: Spark itself would have to take each id apart, and needs several times as long for that.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from morag.format.ids import ID_BYTES
from morag.logic.pointer_checks import POINTER_BYTES, PRESENT_BYTES, Pointer, judged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import Row

    from morag.logic.findings import Finding

PACKED: Final = "what string, bucket int, data binary"
BUCKETS: Final = 256
PRESENT: Final = "present"
POINTERS: Final = "pointers"


class Buckets:
    """Collects packed objects or pointers by the ids that they start with."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._held: defaultdict[int, list[bytes]] = defaultdict(list)
        self._count = 0

    def add(self, packed: bytes) -> None:
        self._held[packed[0]].append(packed)
        self._count += 1

    def emptied(self, unless_below: int = 0) -> Iterator[tuple[str, int, bytes]]:
        """A row per bucket; none, and everything is kept, if there are too few items."""
        if self._count < unless_below:
            return
        for bucket, items in self._held.items():
            yield self._what, bucket, b"".join(items)
        self._held.clear()
        self._count = 0


def wrong_pointers(rows: Iterable[Row]) -> Iterator[Finding]:
    """The findings about the pointers in these rows, which have all objects of their buckets.

    Of several pointers to a missing object, one is reported.
    """
    present: dict[bytes, bytes] = {}
    pointers: list[bytes] = []
    for row in rows:
        data = bytes(row.data)
        if row.what == PRESENT:
            starts = range(0, len(data), PRESENT_BYTES)
            ends = range(PRESENT_BYTES, len(data) + 1, PRESENT_BYTES)
            present.update(
                [
                    (data[s : s + ID_BYTES], data[s + ID_BYTES : e])
                    for s, e in zip(starts, ends, strict=True)
                ]
            )
        else:
            pointers.append(data)
    reported: set[bytes] = set()
    for data in pointers:
        for at in range(0, len(data), POINTER_BYTES):
            target = data[at : at + ID_BYTES]
            if target in reported:
                continue
            found = present.get(target)
            kind, detail = (None, b"") if found is None else (chr(found[0]), found[1:])
            finding = judged(Pointer.unpacked(data[at : at + POINTER_BYTES]), kind, detail)
            if finding is not None:
                if found is None:
                    reported.add(target)
                yield finding

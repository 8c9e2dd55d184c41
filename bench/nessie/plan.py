"""Which workloads run together on fresh servers, and on which stores."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from morag.load.workloads import WORKLOADS

CLIENTS: Final = (1, 4, 16, 64)
SERIES: Final = {"content-clients": "content", "commit-clients": "commit"}
"""Workloads that are repeated with a growing number of clients."""


class Item(Struct, frozen=True):
    """One measurement: a workload with a number of clients."""

    part: str
    """The workload itself, or the series."""
    workload: str
    clients: int


def _items(*parts: str) -> list[Item]:
    found: list[Item] = []
    for part in parts:
        if part in SERIES:
            found += [Item(part, SERIES[part], clients) for clients in CLIENTS]
        else:
            found.append(Item(part, part, WORKLOADS[part].clients))
    return found


GROUPS: Final = (
    _items("config", "reference", "content", "log", "content-clients"),
    _items("contents", "entries", "prefix", "filter", "diff", "commit-large"),
    _items("merge", "transplant", "create-delete", "references"),
    _items("commit", "commit-branches", "read-modify-write", "puts"),
    _items("commit-contended", "commit-clients"),
)
"""Servers start fresh for each group. Objects of failed attempts by contending clients stay in the
heap of Nessie in memory, which would be full after a few groups. The workload `references` is last,
because the many references that it creates would slow the others down."""

NOISE: Final = _items("config", "content", "entries", "commit", "commit-contended")
"""Measured with two equal servers, to see how much of a ratio is chance."""

PARTS: Final = (*WORKLOADS, *SERIES, "start", "bytes", "noise")

_ONLY_ROCKSDB: Final = frozenset({"start", "bytes", "noise"})
LEFT_OUT: Final = {
    "memory": _ONLY_ROCKSDB | SERIES.keys(),
    "rocksdb": frozenset[str](),
    "rocksdb-durable": _ONLY_ROCKSDB | SERIES.keys(),
    "postgres": _ONLY_ROCKSDB,
}
"""Parts that run on a store only if they are named, which saves time."""

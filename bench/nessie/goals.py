"""The goals: how many times faster than Nessie, by store, and limits of single figures."""

from __future__ import annotations

from typing import Final

_EMBEDDED: Final = {
    "config": 3.0,
    "reference": 3.0,
    "content": 3.0,
    "contents": 3.0,
    "entries": 3.0,
    "prefix": 3.0,
    "filter": 10.0,
    "log": 3.0,
    "references": 2.0,
    "diff": 10.0,
    "commit": 4.0,
    "commit-contended": 8.0,
    "commit-branches": 3.0,
    "read-modify-write": 4.0,
    "puts": 5.0,
    "commit-large": 3.0,
    "merge": 8.0,
    "transplant": 3.0,
    "create-delete": 4.0,
}

RATIOS: Final = {
    "memory": _EMBEDDED | {"commit-contended": 5.0, "puts": 3.0},
    "rocksdb": _EMBEDDED,
    "rocksdb-durable": dict.fromkeys(_EMBEDDED, 2.0) | {"commit-contended": 6.0, "commit": 2.5},
    "postgres": dict.fromkeys(_EMBEDDED, 2.0) | {"commit-contended": 8.0, "commit": 3.0},
}

LIMITS: Final = {"start": 1.0, "memory idle": 80e6, "memory after load": 280e6}
"""Of Morag, in seconds and bytes."""

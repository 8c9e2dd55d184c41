"""What a server must know about a store before it opens it: where it runs, who may share it."""

from __future__ import annotations

from typing import Final

from morag.backend.urls import StoreUrl

_IN_THIS_PROCESS: Final = frozenset({"memory", "rocksdb", "sqlite"})
_OF_ONE_PROCESS: Final = frozenset({"memory", "rocksdb"})


def is_embedded(url: str) -> bool:
    """Whether a read takes microseconds, so that it can be done where the requests come in."""
    return StoreUrl.parse(url).scheme in _IN_THIS_PROCESS


def is_shared(url: str) -> bool:
    """Whether several processes can work on it at the same time."""
    return StoreUrl.parse(url).scheme not in _OF_ONE_PROCESS

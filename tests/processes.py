"""Which processes a process started, as Linux tells it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def children(pid: int) -> Iterator[int]:
    """Of all its threads; one may end while we look."""
    for started in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            yield from map(int, started.read_text().split())


def tree(pid: int) -> Iterator[int]:
    """The process, and all that it and they started."""
    yield pid
    for child in children(pid):
        yield from tree(child)

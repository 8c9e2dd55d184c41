"""The descendants of a process, read from Linux's /proc."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def children(pid: int) -> Iterator[int]:
    """The children of all its threads. A thread may end during the listing."""
    for started in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            yield from map(int, started.read_text().split())


def tree(pid: int) -> Iterator[int]:
    """The process and its descendants."""
    yield pid
    for child in children(pid):
        yield from tree(child)

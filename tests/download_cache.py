"""A cache of downloads: the first process that needs a jar or a program fetches it."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CACHE: Final = Path(__file__).parents[1] / ".cache"


def fetched(name: str, fetch: Callable[[Path], Path]) -> Path:
    """The file or directory `name` in the cache.

    If it is missing, `fetch` creates it in an empty directory and returns its path.
    """
    path = _CACHE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(path.name):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=path.parent) as directory:
                fetch(Path(directory)).rename(path)
    return path


@contextmanager
def file_lock(name: str) -> Iterator[None]:
    """Hold a lock: other processes wait until the block ends."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / f"{name}.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        yield

"""Files that a store has open, and whether they are still where they were.

A file that was removed or moved away can be written and synced as before, and is gone as soon as it
is closed. A number of a file is given to no other as long as somebody has it open, so a file with
that number under that name is the one that was opened.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Identity: TypeAlias = tuple[int, int]


def real_path(path: Path | str) -> Path:
    """The one name of a file or directory that leads over no links.

    RocksDB tells by names whether this process has a directory open already, and SQLite keeps its
    log beside the file that a link leads to.
    """
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError, ValueError):  # Opening it will say what is wrong with the name.
        return Path(path).absolute()


def identity(path: Path | str) -> Identity | None:
    """Device and number of the file; `None` if there is none.

    Other errors are raised: that a disk does not answer does not mean that the file is gone.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - Takes a text, and half the time.
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


class OpenFiles:
    """Files as they were when this was made."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._known = {str(path): identity(path) for path in paths}

    def lost(self) -> str | None:
        """The path of a file that is no longer there, if there is one."""
        for path, known in self._known.items():
            with suppress(OSError):
                if identity(path) != known:
                    return path
        return None


def lost_words(store: Path, file: object) -> str:
    """The refusal of writes to a store that has lost a file."""
    return (
        f"The store '{store}' has lost its file '{file}': it was removed, moved or replaced while"
        " the store was open. Nothing is written any more. Stop the server, put the files back or"
        " restore a backup, and start it again"
    )


def keep_until_exit(*opened: object) -> None:
    """Never close what is given.

    A database that is closed tidies up under the names of its files, and somebody else's may be
    there by now, such as a backup that was restored too early.
    """
    for each in opened:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))

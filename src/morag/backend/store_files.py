"""Files of embedded stores: files that vanish while a store is open, and accepted losses.

A file that was removed or moved away can be written and synced as before, and is gone when it is
closed. While a file is open, no other file gets its inode number. So a file with the same name and
number is the file that was opened.
"""

from __future__ import annotations

import ctypes
import logging
import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from morag.errors import RepositoryCorrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Identity: TypeAlias = tuple[int, int]

LEFT_OUT: Final = ".left-out"
"""The end of the names of copies of damaged files."""

_log = logging.getLogger(__name__)


def real_path(path: Path | str) -> Path:
    """The path without symbolic links.

    RocksDB recognises by its name a directory that this process has open already, and SQLite keeps
    its log beside the file that a link points to.
    """
    try:
        return Path(path).resolve()
    except (
        OSError,
        RuntimeError,
        ValueError,
    ):  # Opening it will report what is wrong with the name.
        return Path(path).absolute()


def identity(path: Path | str) -> Identity | None:
    """Device and inode number of the file; `None` if there is none.

    Other errors are raised: a disk that does not answer does not mean that the file is gone.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - Takes half the time of Path.stat.
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


class OpenFiles:
    """Compares files with their state when this object was created."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._known = {str(path): identity(path) for path in paths}

    def lost(self) -> str | None:
        """The path of a file that was removed or replaced, if there is one."""
        for path, known in self._known.items():
            with suppress(OSError):
                if identity(path) != known:
                    return path
        return None


def lost_file_message(store: Path, file: object) -> str:
    """The message with which a store that has lost a file refuses writes."""
    return (
        f"The store '{store}' has lost its file '{file}': it was removed, moved or replaced while"
        " the store was open. Nothing is written any more. Stop the server, put the files back or"
        " restore a backup, and start it again"
    )


def keep_until_exit(*opened: object) -> None:
    """Never close the given objects.

    A database that is closed cleans up by the names of its files. Other files may have these names
    by now, such as a backup that was restored too early.
    """
    for each in opened:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def refuse_or_leave_out(loss: str, leave_out: Callable[[], str], *, accept_loss: bool) -> None:
    """Refuse to open a store that has lost something, unless its URL accepts that.

    `leave_out` makes the store usable without the lost part, and returns the end of a sentence that
    names the copies.
    """
    if not accept_loss:
        raise RepositoryCorrupt(
            f"{loss}. Restore it from a backup; or add accept_loss=on to the store's URL to"
            " open it without everything after that point"
        )
    _log.warning("%s. Opened without the lost part: %s", loss, leave_out())


def name_for_copy(path: Path) -> Path:
    """An unused name: the copy of an earlier loss is not overwritten."""
    numbers = (f".{number}" if number > 1 else "" for number in count(1))
    names = (path.with_name(f"{path.name}{number}{LEFT_OUT}") for number in numbers)
    return next(name for name in names if not name.exists())

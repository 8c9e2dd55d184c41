"""Moving a file on disk: at every moment it is whole under its old name or its new one."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_HALF: Final = "morag-half-"


def move_on_disk(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_to_another_disk(source, target)
        source.unlink()


def remove_halves(directory: Path) -> None:
    """Remove what was left of copies into a directory. Nobody may be copying to there."""
    for half in directory.glob(f"{_HALF}*"):
        half.unlink(missing_ok=True)


def _copy_to_another_disk(source: Path, target: Path) -> None:
    """A copy can be cut short, so it has a name of its own until it is whole and on the disk.

    What a crash leaves behind is no hidden file: among the files of a table it is listed, and goes
    as garbage. A quarantine is not listed, and needs `remove_halves`.
    """
    descriptor, half = tempfile.mkstemp(dir=target.parent, prefix=_HALF)
    try:
        with source.open("rb") as reader, os.fdopen(descriptor, "wb") as writer:
            shutil.copyfileobj(reader, writer)
            writer.flush()
            os.fsync(descriptor)
        shutil.copystat(source, half)
        Path(half).rename(target)
    except BaseException:
        Path(half).unlink(missing_ok=True)
        raise
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

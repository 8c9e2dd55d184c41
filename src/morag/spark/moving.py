"""Moving a file on disk: at every moment it is whole under its old name or its new one."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path


def move_on_disk(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_to_another_disk(source, target)
        source.unlink()


def _copy_to_another_disk(source: Path, target: Path) -> None:
    """A copy can be cut short, so it has a name of its own until it is whole and on the disk.

    One that a crash leaves behind is no hidden file: listings find it, and it goes as garbage.
    """
    descriptor, part = tempfile.mkstemp(dir=target.parent, prefix=f"{target.name}.part-")
    try:
        with source.open("rb") as reader, os.fdopen(descriptor, "wb") as writer:
            shutil.copyfileobj(reader, writer)
            writer.flush()
            os.fsync(descriptor)
        shutil.copystat(source, part)
        Path(part).rename(target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

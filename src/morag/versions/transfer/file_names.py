"""Names of export files, and how problems with files are reported."""

from __future__ import annotations

import re
import zipfile
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from morag.errors import ArchiveInvalid, BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

METADATA: Final = "export-metadata"
HEADS_AND_FORKS: Final = "heads-and-forks"
DESCRIPTION: Final = "repository-description"
EXTRA: Final = "morag-extra"
"""What Nessie's messages cannot say, as JSON lines. Nessie never opens this file."""

COMMITS: Final = "commits"
REFERENCES: Final = "named-refs"
GENERIC: Final = "custom"

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


def data_file_name(kind: str, number: int) -> str:
    """The name of a data file: `kind` is one of `COMMITS`, `REFERENCES`, `GENERIC`."""
    return f"{kind}-{number:08d}"


def checked_name(name: str) -> str:
    """Refuse a name that could lead out of the export."""
    if not _NAME.fullmatch(name):
        raise ArchiveInvalid(f"'{name[:200]}' is not the name of an export file")
    return name


@contextmanager
def file_problems(path: Path) -> Iterator[None]:
    """Report what the file system and the ZIP library complain about."""
    try:
        yield
    except OSError as problem:
        raise BadRequest(f"'{path}': {problem.strerror or problem}") from problem
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, zlib.error) as problem:
        raise ArchiveInvalid(f"'{path}' is damaged: {problem}") from problem

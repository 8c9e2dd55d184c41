"""The meaning of RocksDB's error messages. All its errors are one class, so only the text tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import RepositoryCorrupt, ServiceUnavailable, StoreCannotWrite

if TYPE_CHECKING:
    from pathlib import Path

_CORRUPTION: Final = "Corruption"
_IO_ERROR: Final = "IO error"
RESTORE: Final = "Stop the server and restore the store from a backup"


def is_corruption(error: Exception) -> bool:
    return str(error).startswith(_CORRUPTION)


def is_io_error(error: Exception) -> bool:
    return str(error).startswith(_IO_ERROR)


def is_full(error: Exception) -> bool:
    return "No space left" in str(error)


def damaged(path: Path, error: object) -> RepositoryCorrupt:
    return RepositoryCorrupt(f"The store '{path}' is damaged ({error}). {RESTORE}")


def read_failure(path: Path, error: Exception) -> Exception:
    """The error to raise for a failed read; `error` itself if the disk is not the reason."""
    if is_corruption(error):
        return damaged(path, error)
    if is_io_error(error):
        return ServiceUnavailable(f"The store '{path}' cannot read ({error}). Check its disk")
    return error


def write_failure(path: Path, error: Exception) -> Exception:
    """The error to raise for a failed write; `error` itself if the disk is not the reason."""
    if is_corruption(error):
        return damaged(path, error)
    if not is_io_error(error):
        return error
    if is_full(error):
        advice = (
            "Make room on its disk: some seconds after 16 MiB are free, often earlier, writes are"
            " taken again; only if they are not, restart the server"
        )
    else:
        advice = "Check its disk, then restart the server: it takes no writes before that"
    return StoreCannotWrite(f"The store '{path}' cannot write ({error}). {advice}")

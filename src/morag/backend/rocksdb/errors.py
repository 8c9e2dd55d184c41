"""The meanings of RocksDB's errors. They are all of one class, so only their texts differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.backend.driver_errors import ErrorTable, Meaning
from morag.errors import (
    RepositoryCorrupt,
    ServiceUnavailable,
    StoreCannotWrite,
    StoreLocked,
    StoreUrlInvalid,
)

if TYPE_CHECKING:
    from pathlib import Path

RESTORE: Final = "Stop the server and restore the store from a backup"

_CORRUPTION: Final = "Corruption"
_IO_ERROR: Final = "IO error"
_DAMAGED: Final = "The store '{address}' is damaged ({error}). " + RESTORE
_CANNOT_WRITE: Final = "The store '{address}' cannot write ({error}). "
_FULL: Final = ("No space left",)
_OPEN_HERE: Final = "lock hold by current process"
_LOCKED: Final = "While lock file"


def _kind(error: Exception) -> str:
    """RocksDB's kind of error, with which its text starts."""
    return next((kind for kind in (_CORRUPTION, _IO_ERROR) if str(error).startswith(kind)), "")


def is_corruption(error: Exception) -> bool:
    return _kind(error) == _CORRUPTION


def is_locked(error: Exception) -> bool:
    return _OPEN_HERE in str(error) or _LOCKED in str(error)


def damaged(path: Path, fault: object) -> RepositoryCorrupt:
    return RepositoryCorrupt(_DAMAGED.format(address=path, error=fault))


def in_use(path: Path) -> StoreLocked:
    return StoreLocked(_IN_USE.format(address=path))


_IN_USE: Final = (
    "The store '{address}' is in use by another process. RocksDB serves one at a time: stop that"
    " process first, or send the work to it"
)
_IS_DAMAGED: Final = Meaning(RepositoryCorrupt, _DAMAGED, codes=frozenset({_CORRUPTION}))


def _table(*meanings: Meaning) -> ErrorTable:
    return ErrorTable(raised=(Exception,), code=_kind, meanings=meanings)


READING: Final = _table(
    _IS_DAMAGED,
    Meaning(
        ServiceUnavailable,
        "The store '{address}' cannot read ({error}). Check its disk",
        codes=frozenset({_IO_ERROR}),
    ),
)
WRITING: Final = _table(
    _IS_DAMAGED,
    Meaning(
        StoreCannotWrite,
        _CANNOT_WRITE + "Make room on its disk: some seconds after 16 MiB are free, often earlier,"
        " writes are accepted again; only if they are not, restart the server",
        codes=frozenset({_IO_ERROR}),
        words=_FULL,
    ),
    Meaning(
        StoreCannotWrite,
        _CANNOT_WRITE + "Check its disk, then restart the server: it accepts no writes until then",
        codes=frozenset({_IO_ERROR}),
    ),
)
OPENING_A_NEW_STORE: Final = _table(
    Meaning(
        StoreLocked,
        "The store '{address}' is open already in this process; use the repository that has it",
        words=(_OPEN_HERE,),
    ),
    Meaning(StoreLocked, _IN_USE, words=(_LOCKED,)),
    _IS_DAMAGED,
    Meaning(StoreCannotWrite, _CANNOT_WRITE + "Make room on its disk", words=_FULL),
    Meaning(
        StoreUrlInvalid,
        "Cannot open a RocksDB store in {address!r} ({error}); name a directory that this process"
        " may create or write to",
    ),
)
OPENING: Final = _table(
    *OPENING_A_NEW_STORE.meanings[:3],
    Meaning(RepositoryCorrupt, _DAMAGED, words=("No such file",)),
    *OPENING_A_NEW_STORE.meanings[3:],
)
"""For a store that exists: a missing file is damage."""

"""Opening a RocksDB directory: with which options, and what to say when it cannot be done."""

from __future__ import annotations

import fcntl
import logging
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompactionStyle,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    UniversalCompactOptions,
)

from morag.backend.left_out import refuse_or_leave_out
from morag.backend.rocksdb_damage import cut_off, examine, leave_out, look
from morag.backend.rocksdb_errors import damaged, is_corruption, is_full
from morag.backend.rocksdb_files import RocksDBFiles
from morag.backend.rocksdb_manifest import find_manifest_damage
from morag.backend.rocksdb_synced import SyncedNote, read_synced
from morag.errors import (
    MoragError,
    StoreCannotWrite,
    StoreLocked,
    StoreUrlInvalid,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from morag.backend.rocksdb_damage import Findings

REFS: Final = "nessie_refs"
ROWS: Final = "nessie_objects"

_MIB: Final = 1 << 20
_OURS: Final = frozenset({"LOCK", "LOG", "IDENTITY", "rocksdict-config.json"})
"""What an opening that was cut short may have left behind."""

_log = logging.getLogger(__name__)
_opening = Lock()
"""Held by a thread that opens a store: another one could lose its lock by `_locked`."""


def open_database(
    path: Path, *, accept_loss: bool = False
) -> tuple[Rdict, RocksDBFiles, SyncedNote]:
    """The database in a directory, made if it is not there. Anything else there is left alone.

    It is opened only if it holds all that was written to it, or if `accept_loss` allows less. The
    log then says which writes are left out. The path must lead over no links: RocksDB tells by it
    whether this process has the database open already.
    """
    try:
        if path.exists() and not path.is_dir():
            raise StoreUrlInvalid(f"'{path}' is not a directory; RocksDB needs one")
        path.mkdir(parents=True, exist_ok=True)
        was_there = any(path.glob("CURRENT")) or any(path.glob("MANIFEST-*"))
        if not was_there and any(entry.name not in _OURS for entry in path.iterdir()):
            raise StoreUrlInvalid(
                f"'{path}' holds other files and no store; name a new or an empty directory"
            )
    except (OSError, ValueError) as error:
        raise unusable(path, error) from error
    try:
        _check_manifest(path)
        families = set(Rdict.list_cf(str(path))) if was_there else set()
        if families and not families >= {REFS, ROWS}:  # None at all is damage; that shows below.
            raise StoreUrlInvalid(
                f"The RocksDB database in '{path}' is another program's, or damaged; name another "
                "directory, or restore it from a backup"
            )
        with _opening:
            opened = _open_whole(path, was_there, accept_loss)
        try:
            return opened, RocksDBFiles(path), SyncedNote(path)
        except OSError:
            opened.close()
            raise
    except MoragError:
        raise
    except Exception as error:
        raise _refusal(path, was_there, error) from error


def _check_manifest(path: Path) -> None:
    if fault := find_manifest_damage(path, read_synced(path)):
        raise damaged(path, fault)


def _open_whole(path: Path, was_there: bool, accept_loss: bool) -> Rdict:
    """Open with logs that are whole; see to it before RocksDB replays and then deletes them.

    The mode is the one in which RocksDB refuses a log if a checksum in it is wrong. The others
    pass over damage.
    """
    synced = read_synced(path).sequence
    found = look(path, synced)
    if found.unfinished is not None:
        with _locked(path):
            found = look(path, synced)
            _cut_off(path, found)
    refused: Exception | None = None
    if found.damage is None:
        try:
            return _open(path, is_new=not was_there)
        except Exception as error:
            if not is_corruption(error):
                raise
            refused = error
    with _locked(path):
        found = examine(path, synced)
        _cut_off(path, found)
        if found.damage is not None:
            refuse_or_leave_out(
                f"The store '{path}' has lost writes: {found.damage}",
                partial(leave_out, path, found.damage),
                accept_loss=accept_loss,
            )
        elif found.unfinished is None and refused is not None:
            raise refused
    return _open(path, is_new=False)


def _cut_off(path: Path, found: Findings) -> None:
    if (end := found.unfinished) is not None:
        _log.warning(
            "The store '%s' was not closed: the end of its log '%s', after byte %d, is unfinished"
            " and left out",
            *(path, end.log.name, end.safe),
        )
        cut_off(end)


def _open(path: Path, *, is_new: bool) -> Rdict:
    blocks = Cache(32 * _MIB)  # Small, and one for all: objects are cached above, decoded.
    # After a full disk RocksDB waits for as much room as a memtable took when it was opened, and
    # only then tries to go on. So that it tries soon, memtables grow after that.
    rows = engine_options(blocks, memtable_bytes=4 * _MIB)
    small = engine_options(blocks, memtable_bytes=2 * _MIB)
    small.create_if_missing(is_new)
    small.set_wal_recovery_mode(DBRecoveryMode.absolute_consistency())
    opened = Rdict(str(path), small, {REFS: small, ROWS: rows})
    opened.get_column_family(ROWS).set_options({"write_buffer_size": str(16 * _MIB)})
    return opened


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep others from opening the store while its logs are judged and cut.

    RocksDB is asked first whether this process has it open: then the file of its lock must not
    even be opened, because the lock ends when any handle to that file is closed. RocksDB takes its
    lock before it finds that the database is there, which is an error here.
    """
    options = Options(raw_mode=True)
    options.set_error_if_exists(True)
    try:
        Rdict(str(path), options)
    except Exception as error:
        if _is_locked(error):
            raise
    with (path / "LOCK").open("ab") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise _in_use(path) from error
        yield


def _is_locked(error: Exception) -> bool:
    return "lock hold by current process" in str(error) or "While lock file" in str(error)


def _refusal(path: Path, was_there: bool, error: Exception) -> MoragError:
    text = str(error)
    if "lock hold by current process" in text:
        return StoreLocked(
            f"The store '{path}' is open already in this process; use the repository that has it"
        )
    if _is_locked(error):
        return _in_use(path)
    if is_corruption(error) or (was_there and "No such file" in text):
        return damaged(path, error)
    if is_full(error):
        return StoreCannotWrite(f"The store '{path}' cannot write ({text}). Make room on its disk")
    return unusable(path, error)


def _in_use(path: Path) -> StoreLocked:
    return StoreLocked(
        f"The store '{path}' is in use by another process. RocksDB serves one at a time:"
        " stop that one first, or let it do the work"
    )


def unusable(path: Path, error: Exception) -> StoreUrlInvalid:
    advice = "name a directory that this process may create or write to"
    return StoreUrlInvalid(f"Cannot open a RocksDB store in {str(path)!r} ({error}); {advice}")


def engine_options(blocks: Cache, memtable_bytes: int) -> Options:
    """As Nessie opens it where that matters for the files; otherwise for speed.

    Nessie can read what these write: LZ4 and table format 5 are older than its RocksDB.
    """
    options = Options(raw_mode=True)
    options.create_missing_column_families(True)
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_write_buffer_size(memtable_bytes)
    options.set_max_write_buffer_number(3)
    # All families flush together. Else refs, which fill theirs slowly, would keep the log of all
    # rows alive beside the files that the rows were flushed to.
    options.set_atomic_flush(True)
    everything = UniversalCompactOptions()
    everything.compression_size_percent = -1  # Otherwise only old files are compressed.
    options.set_universal_compaction_options(everything)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_keep_log_file_num(5)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    tables = BlockBasedOptions()
    tables.set_bloom_filter(10, block_based=False)
    tables.set_block_cache(blocks)
    tables.set_format_version(5)
    options.set_block_based_table_factory(tables)
    return options

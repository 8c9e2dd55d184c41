"""Opens a RocksDB directory: checks its files, and sets its options."""

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

from morag.backend.rocksdb.errors import (
    OPENING,
    OPENING_A_NEW_STORE,
    damaged,
    in_use,
    is_corruption,
    is_locked,
)
from morag.backend.rocksdb.log_damage import cut_off, examine, leave_out, look
from morag.backend.rocksdb.manifest import find_manifest_damage
from morag.backend.rocksdb.open_files import RocksDBFiles
from morag.backend.rocksdb.synced_note import SyncedNote, read_synced
from morag.backend.store_files import refuse_or_leave_out
from morag.errors import (
    MoragError,
    StoreUrlInvalid,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from morag.backend.rocksdb.log_damage import Findings

REFS: Final = "nessie_refs"
ROWS: Final = "nessie_objects"

_MIB: Final = 1 << 20
_OURS: Final = frozenset({"LOCK", "LOG", "IDENTITY", "rocksdict-config.json"})
"""Files that an interrupted opening may have left behind."""

_log = logging.getLogger(__name__)
_opening = Lock()
"""Held by a thread that opens a store: `_locked` of another thread could release its lock."""


def open_database(
    path: Path, *, accept_loss: bool = False
) -> tuple[Rdict, RocksDBFiles, SyncedNote]:
    """Open the database in a directory, or create it. Other files there are not changed.

    It is opened only if it holds everything that was written to it, unless `accept_loss` is set;
    then the server's log names the writes that are left out. The path must not contain symbolic
    links: RocksDB recognises by it a database that this process has open already.
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
        raise OPENING_A_NEW_STORE.translate(error, str(path)) from error
    try:
        _check_manifest(path)
        families = set(Rdict.list_cf(str(path))) if was_there else set()
        if families and not families >= {
            REFS,
            ROWS,
        }:  # No family at all is damage, which is found below.
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
        table = OPENING if was_there else OPENING_A_NEW_STORE
        raise table.translate(error, str(path)) from error


def _check_manifest(path: Path) -> None:
    if fault := find_manifest_damage(path, read_synced(path)):
        raise damaged(path, fault)


def _open_whole(path: Path, was_there: bool, accept_loss: bool) -> Rdict:
    """Check the logs before RocksDB replays and then deletes them, and open the store.

    The recovery mode is the one in which RocksDB refuses a log with a wrong checksum. The others
    skip damage.
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
    blocks = Cache(16 * _MIB)  # Small, and shared: `persist` caches objects, decoded.
    # After a full disk RocksDB waits until there is room for a memtable of the size that it had
    # when the store was opened. So memtables start small, and grow after that.
    rows = engine_options(blocks, memtable_bytes=4 * _MIB)
    small = engine_options(blocks, memtable_bytes=2 * _MIB)
    small.create_if_missing(is_new)
    small.set_wal_recovery_mode(DBRecoveryMode.absolute_consistency())
    opened = Rdict(str(path), small, {REFS: small, ROWS: rows})
    opened.get_column_family(ROWS).set_options({"write_buffer_size": str(16 * _MIB)})
    return opened


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Prevent others from opening the store while its logs are checked and cut.

    First RocksDB reports whether this process has the store open. If so, the file of its lock must
    not even be opened, because the lock ends when any handle to that file is closed. RocksDB takes
    its lock before it finds that the database is there, which is an error here.
    """
    options = Options(raw_mode=True)
    options.set_error_if_exists(True)
    try:
        Rdict(str(path), options)
    except Exception as error:
        if is_locked(error):
            raise
    with (path / "LOCK").open("ab") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise in_use(path) from error
        yield


def close_all(*families: Rdict) -> Exception | None:
    """Close all parts of a store, and return the last error.

    RocksDB shuts down when the last of them is gone; each flushes what it wrote.
    """
    failure = None
    for family in families:
        try:
            family.close()
        except Exception as error:  # noqa: BLE001 - The others must be closed, too.
            failure = error
    return failure


def engine_options(blocks: Cache, memtable_bytes: int) -> Options:
    """Nessie's options where they matter for the files; the others are chosen for speed.

    Nessie can read the files: LZ4 and table format 5 are older than its version of RocksDB.
    """
    options = Options(raw_mode=True)
    options.create_missing_column_families(True)
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_write_buffer_size(memtable_bytes)
    options.set_max_write_buffer_number(3)
    # All families flush together. Otherwise the refs, whose memtable fills slowly, would keep the
    # logs of rows that are flushed already.
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

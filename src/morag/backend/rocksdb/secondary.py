"""Opens a RocksDB directory for reading, while another process may write to it."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from rocksdict import AccessType, Cache, Options, Rdict

from morag.backend.rocksdb.errors import OPENING_A_NEW_STORE, damaged, is_corruption
from morag.backend.rocksdb.log_damage import examine, look
from morag.backend.rocksdb.manifest import find_manifest_damage, logs_needed
from morag.backend.rocksdb.opening import REFS, ROWS, engine_options
from morag.backend.rocksdb.synced_note import read_synced
from morag.backend.rocksdb.write_ahead_log import logs_in
from morag.errors import MoragError, RepositoryCorrupt, StoreLocked, StoreUrlInvalid

if TYPE_CHECKING:
    from pathlib import Path

_MIB: Final = 1 << 20
_ATTEMPTS: Final = 100
"""An attempt takes some 50 ms; a writer at full speed begins a new log no more often than that."""
_ATTEMPTS_WHILE_FILES_CHANGE: Final = 5


def open_secondary(path: Path) -> tuple[Rdict, TemporaryDirectory[str]]:
    """Open the database with everything that was written before this call.

    The returned directory holds RocksDB's own notes; remove it after closing. All files are kept
    open, so that the writer's compaction does not remove their content.
    """
    try:
        if not any(path.glob("CURRENT")):
            raise StoreUrlInvalid(f"There is no RocksDB store in '{path}'; name its directory")
    except OSError as error:
        raise OPENING_A_NEW_STORE.translate(error, str(path)) from error
    # A small cache is enough: a job that reads everything needs a block again only after any cache
    # has dropped it.
    options = engine_options(Cache(8 * _MIB), memtable_bytes=16 * _MIB)
    options.set_max_open_files(-1)
    options.set_allow_mmap_reads(True)  # A fifth faster for keys in random order.
    notes = TemporaryDirectory(prefix="morag-rocksdb-")
    try:
        return _open_whole(path, options, AccessType.secondary(notes.name)), notes
    except BaseException:
        notes.cleanup()
        raise


def _open_whole(path: Path, options: Options, access: AccessType) -> Rdict:
    """Open the store, and retry until nothing is missing.

    RocksDB reads the manifest first and the logs after it. It does not report a log that is
    damaged, or that the writer deletes in between because a table has its content. So the logs are
    read here before, and the manifest must still need the same logs after it. If the next attempt
    begins with the same files, then no writer is the cause, and the store is damaged.
    """
    last_seen = None
    for _ in range(_ATTEMPTS):
        if fault := find_manifest_damage(path, read_synced(path)):
            raise damaged(path, fault)
        oldest_log, logs = _oldest_log(path), logs_in(path)
        found = look(path, read_synced(path).sequence)
        if found.damage is None:
            opened = _open(path, options, access)
            if opened.latest_sequence_number() >= found.newest and _oldest_log(path) == oldest_log:
                return opened
            opened.close()
        seen = oldest_log, logs, found
        if seen == last_seen:
            raise _incomplete(path, read_synced(path).sequence)
        last_seen = seen
    raise StoreLocked(
        f"The store '{path}' cannot be read now: a writer replaces its logs faster than they are"
        " read. Try again when it has less to do, or read through its server"
    )


def _oldest_log(path: Path) -> int | None:
    """The number of the oldest log that is needed. RocksDB deletes none before that changes."""
    needed = logs_needed(path)
    return None if needed is None else needed.oldest


def _open(path: Path, options: Options, access: AccessType) -> Rdict:
    for attempts_left in reversed(range(_ATTEMPTS_WHILE_FILES_CHANGE)):
        try:
            if not set(Rdict.list_cf(str(path))) >= {REFS, ROWS}:
                raise StoreUrlInvalid(
                    f"The RocksDB database in '{path}' is another program's; name another directory"
                )
            families = {REFS: options, ROWS: options}
            return Rdict(str(path), options, families, access_type=access)
        except MoragError:
            raise
        except Exception as error:
            # The writer may replace files after we read the list of them.
            if attempts_left and "No such file" in str(error):
                continue
            if is_corruption(error) and examine(path, 0) != look(path, 0):
                raise _incomplete(path, 0) from error
            raise damaged(path, error) from error
    raise AssertionError("the last attempt raises")


def _incomplete(path: Path, synced: int) -> RepositoryCorrupt:
    """The error for readers, which cannot repair the store: reading leaves it as it is."""
    found = examine(path, synced)
    why = "the end of its log is not finished" if found.damage is None else str(found.damage)
    return RepositoryCorrupt(
        f"The store '{path}' cannot be read as it is: {why}. Restore it from a backup; or open it"
        " once for writing (with accept_loss=on in its URL if that is refused), and then read it"
        " again"
    )

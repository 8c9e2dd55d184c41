"""Opening a RocksDB directory: with which options, and what to say when it cannot be done."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    Rdict,
    UniversalCompactOptions,
)

from morag.errors import RepositoryCorrupt, StoreCannotWrite, StoreLocked, StoreUrlInvalid

if TYPE_CHECKING:
    from pathlib import Path

REFS: Final = "nessie_refs"
ROWS: Final = "nessie_objects"

_MIB: Final = 1 << 20
_TRIES: Final = 5
_OURS: Final = frozenset({"LOCK", "LOG", "IDENTITY", "rocksdict-config.json"})
"""What an opening that was cut short may have left behind."""


def open_database(path: Path) -> Rdict:
    """The database in a directory, made if it is not there. Anything else there is left alone."""
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
        raise _unusable(path, error) from error
    try:
        families = set(Rdict.list_cf(str(path))) if was_there else set()
        if families and not families >= {REFS, ROWS}:  # None at all is damage; that shows below.
            raise StoreUrlInvalid(
                f"The RocksDB database in '{path}' is another program's, or damaged; name another "
                "directory, or restore it from a backup"
            )
        blocks = Cache(32 * _MIB)  # Small, and one for all: objects are cached above, decoded.
        rows = _options(blocks, memtable_bytes=16 * _MIB)
        small = _options(blocks, memtable_bytes=2 * _MIB)
        return Rdict(str(path), small, {REFS: small, ROWS: rows})
    except StoreUrlInvalid:
        raise
    except Exception as error:
        text = str(error)
        if "lock hold by current process" in text:
            raise StoreLocked(
                f"The store '{path}' is open already in this process; use the repository that "
                "has it"
            ) from error
        if "While lock file" in text:
            raise StoreLocked(
                f"The store '{path}' is in use by another process. RocksDB serves one at a time:"
                " stop that one first, or let it do the work"
            ) from error
        if text.startswith("Corruption") or (was_there and "No such file" in text):
            advice = "restore it from a backup"
            raise RepositoryCorrupt(f"The store '{path}' is damaged; {advice} ({text})") from error
        if "No space left" in text:
            raise StoreCannotWrite(
                f"The store '{path}' cannot write ({text}). Make room on its disk"
            ) from error
        raise _unusable(path, error) from error


def open_secondary(path: Path) -> tuple[Rdict, TemporaryDirectory[str]]:
    """The database as it is now, to be read beside the process that writes to it, if there is one.

    With it comes a directory of what RocksDB notes about it, to be removed after it is closed. All
    files are held open, so that the writer's compaction takes nothing away.
    """
    try:
        if not any(path.glob("CURRENT")):
            raise StoreUrlInvalid(f"There is no RocksDB store in '{path}'; name its directory")
    except OSError as error:
        raise _unusable(path, error) from error
    # Small: whoever reads everything meets a block again only when it is out of any cache.
    options = _options(Cache(8 * _MIB), memtable_bytes=16 * _MIB)
    options.set_max_open_files(-1)
    options.set_allow_mmap_reads(True)  # A fifth faster where keys are in no order.
    notes = TemporaryDirectory(prefix="morag-rocksdb-")
    try:
        return _secondary(path, options, AccessType.secondary(notes.name)), notes
    except BaseException:
        notes.cleanup()
        raise


def _secondary(path: Path, options: Options, access: AccessType) -> Rdict:
    for tries_left in reversed(range(_TRIES)):
        try:
            if not set(Rdict.list_cf(str(path))) >= {REFS, ROWS}:
                raise StoreUrlInvalid(
                    f"The RocksDB database in '{path}' is another program's; name another directory"
                )
            families = {REFS: options, ROWS: options}
            return Rdict(str(path), options, families, access_type=access)
        except StoreUrlInvalid:
            raise
        except Exception as error:
            # The writer may replace files between our look at its list of them and at themselves.
            if tries_left and "No such file" in str(error):
                continue
            raise RepositoryCorrupt(
                f"The store '{path}' cannot be read; restore it from a backup ({error})"
            ) from error
    raise AssertionError("the tries end by an error")


def _unusable(path: Path, error: Exception) -> StoreUrlInvalid:
    advice = "name a directory that this process may create or write to"
    return StoreUrlInvalid(f"Cannot open a RocksDB store in {str(path)!r} ({error}); {advice}")


def _options(blocks: Cache, memtable_bytes: int) -> Options:
    """As the original opens it where that matters for the files; otherwise for speed.

    The original can read what these write: LZ4 and table format 5 are older than its RocksDB.
    """
    options = Options(raw_mode=True)
    options.create_if_missing(True)
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

"""The backend on a RocksDB directory, for a single server process."""

from __future__ import annotations

import logging
import os
from itertools import islice
from threading import Condition, Lock
from typing import TYPE_CHECKING, Final

from rocksdict import ColumnFamily, WriteBatch

from morag.backend.base import UNIQUE_KIND, WHOLE, Applied, LogRow, ObjId, Ref, Row
from morag.backend.ordered_keys import after, is_row_id, log_prefix_of, prefix_of, row_key
from morag.backend.rocksdb.errors import WRITING
from morag.backend.rocksdb.opening import REFS, ROWS, close_all, open_database
from morag.backend.rocksdb.reads import FEW, RocksDBReads
from morag.backend.rocksdb.secondary import open_secondary
from morag.backend.rocksdb.writes import Writes
from morag.backend.store_files import keep_until_exit, lost_file_message, real_path
from morag.errors import StoreCannotWrite, StoreLocked
from morag.format.refs import decode_ref, is_ref
from morag.format.rows import decode_row, encode_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from morag.backend.base import RefSwap, Slice
    from morag.backend.rocksdb.open_files import RocksDBFiles
    from morag.backend.rocksdb.synced_note import SyncedNote
    from morag.backend.urls import StoreUrl

DELETE_AT_ONCE: Final = 10_000

_NO_REFS: Final[Mapping[bytes, bytes | None]] = {}
_log = logging.getLogger(__name__)


def open_rocksdb(url: StoreUrl) -> RocksDBBackend:
    url.check_options(frozenset({"sync", "accept_loss"}))
    return RocksDBBackend(
        url.path("for example rocksdb:./data"),
        sync=url.flag("sync", default=True),
        read_only=url.read_only,
        accept_loss=url.flag("accept_loss", default=False),
    )


class RocksDBBackend:
    """Checks and writes under one lock, and syncs outside of it, many writers with one sync.

    A batch is first written without a sync, which takes microseconds. Then `flush_wal` syncs the
    log. Unlike `write`, it releases the interpreter's lock, so that other threads run while the
    disk works. A writer that finds no sync in progress syncs for all that have written so far.

    So a write can be read before it is durable. For rows that is harmless: everything that builds
    on them comes later in the log, so it is lost with them or not at all. A ref however is shown to
    clients. Readers get its durable value until the sync is done, and the next swap of the same ref
    waits for that.

    After a failed sync, a later one that succeeds proves nothing, so every write is refused from
    then on. The same holds if files are gone. After a failed write, RocksDB itself refuses all
    others. If the disk was full and no longer is, RocksDB recovers after some seconds, and the next
    write succeeds.
    """

    is_private: Final = True

    def __init__(
        self,
        path: Path | str,
        sync: bool = True,
        read_only: bool = False,
        accept_loss: bool = False,
    ) -> None:
        self._path = real_path(path)
        self._read = RocksDBReads(self._path)
        self._process = os.getpid()
        self._notes: TemporaryDirectory[str] | None = None
        self._files: RocksDBFiles | None = None
        self._note: SyncedNote | None = None
        if read_only:
            self._db, self._notes = open_secondary(self._path)
        else:
            self._db, self._files, self._note = open_database(self._path, accept_loss=accept_loss)
            self._note.write(self._db.latest_sequence_number())  # All of it is in tables now.
        self._refs = self._db.get_column_family(REFS)
        self._rows = self._db.get_column_family(ROWS)
        self._in_refs = self._db.get_column_family_handle(REFS)
        self._in_rows = self._db.get_column_family_handle(ROWS)
        self.needs_sync = sync
        self._looking = Lock()  # Held while files are checked; taken before `_turn`.
        self._turn = Condition(Lock())  # Guards everything below, and every decision to write.
        # For each ref whose newest value is not durable: the number of the write, and the value
        # before it.
        self._durable: dict[bytes, tuple[int, bytes | None]] = {}
        self._written = self._synced = 0
        self._syncing = self._closed = False
        self._refusal = ""  # Why all writes are refused until the store is reopened, if they are.
        self._write_error: Exception | None = None  # Of the newest write, if it failed.

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        prefix, found = prefix_of(repo), {}
        keys = [prefix + name.encode() for name in names]
        # In this order: a write is noted in `_durable` before it can be read.
        stored = self._read.several(self._refs, keys)
        for name, key, newest in zip(names, keys, stored, strict=True):
            _, value = self._durable.get(key, (0, newest))
            # The key of `b:x` in repository `a` is that of `x` in `a:b`; the stored name decides.
            if value is not None and (ref := decode_ref(value, name)).name == name:
                found[name] = ref
        return found

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        return self.apply(repo, (), swap).swapped

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        if len(ids) > FEW:
            ids = sorted(ids)  # Neighbours are in one block.
        prefix = prefix_of(repo)
        found = zip(ids, self._read.several(self._rows, [prefix + id for id in ids]), strict=True)
        return {id: decode_row(id, message) for id, message in found if message is not None}

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        prefix, writes = prefix_of(repo), self._writes()
        with self._turn:
            new = writes.insert(prefix, rows, self._messages(prefix, rows))
            self._write_durably(writes.batch)
        return new

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        key, batch = row_key(prefix_of(repo), expected.id), WriteBatch(raw_mode=True)
        with self._turn:
            self._check_refusal()
            message = self._read.one(self._rows, key)
            if message is None:
                return False
            stored = decode_row(expected.id, message)
            if (stored.kind, stored.version) != (expected.kind, expected.version):
                return False
            if new is None:
                batch.delete(key, self._in_rows)
            else:
                batch.put(key, encode_row(new), self._in_rows)
            self._write_durably(batch)
        return True

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        prefix = prefix_of(repo)
        self._delete((row_key(prefix, id) for id in ids), self._in_rows)

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        prefix, writes = prefix_of(repo), self._writes()
        with self._turn:
            self._check_refusal()
            deleted = writes.delete_unchanged(prefix, rows, self._messages(prefix, rows))
            if deleted:
                self._write_durably(writes.batch)
        return deleted

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        return self._read.rows(self._rows, prefix_of(repo), part, kinds)

    def erase(self, repo: str) -> None:
        prefix, log_prefix = prefix_of(repo), log_prefix_of(repo)
        refs = self._read.scan(self._refs, prefix, after(prefix))
        rows = self._read.scan(self._rows, prefix, after(prefix))
        log = self._read.scan(self._db, log_prefix, after(log_prefix))
        # Refs first: a crash then leaves only garbage.
        self._delete((key for key, value in refs if _is_key(key, prefix, value)), self._in_refs)
        self._delete((key for key, _ in rows if is_row_id(key[len(prefix) :])), self._in_rows)
        self._delete((key for key, _ in log), None)

    def close(self) -> None:
        with self._looking, self._turn:
            while self._synced < self._written and not self._refusal:
                self._sync_all()
            if self._closed:
                return
            self._closed = True
            if self._files is not None and (lost := self._files.elsewhere()) is not None:
                self._refuse_for(lost)
                keep_until_exit(self._refs, self._rows, self._db, self._in_refs, self._in_rows)
                _log.error("Closing the store '%s': %s", self._path, self._refusal)
                return
            newest = self._db.latest_sequence_number()
            failure = close_all(self._refs, self._rows, self._db)
            del self._in_refs, self._in_rows
            if self._notes is not None:
                self._notes.cleanup()
            if self._note is not None:
                if failure is None:
                    self._note.look_at_manifest()
                    self._note.write(newest)
                self._note.close()
        if failure is not None:  # No harm: what was acknowledged is in RocksDB's log.
            _log.error("Closing the store '%s': %s", self._path, failure)

    def check_writable(self) -> None:
        lost = None
        with self._looking:  # Not `_turn`: writers need not wait until a directory is read.
            if self._files is not None and not self._closed and not self._refusal:
                lost = self._files.lost_of_all(self._db)
        with self._turn:
            self._refuse_for(lost)
            self._check_refusal()
            if self._write_error is not None:  # An empty batch fails as long as others do.
                self._write_now(WriteBatch(raw_mode=True))

    def apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied:
        return self._apply_durably(repo, rows, (swap,), log)

    def apply_all(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow] = ()
    ) -> bool:
        return self._apply_durably(repo, rows, swaps, log).swapped

    def try_apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied | None:
        return self._try_apply(repo, rows, (swap,), log)

    def try_apply_all(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow] = ()
    ) -> bool | None:
        applied = self._try_apply(repo, rows, swaps, log)
        return None if applied is None else applied.swapped

    def sync(self) -> None:
        with self._turn:
            self._await_sync()

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        writes = self._writes()
        writes.append(repo, rows)
        with self._turn:
            self._write_durably(writes.batch)

    def read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        prefix = log_prefix_of(repo)
        end = after(prefix) if before is None else prefix + before
        lines = self._read.last(self._db, prefix, end, limit)
        return [LogRow(key[len(prefix) :], data) for key, data in lines]

    def _apply_durably(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow]
    ) -> Applied:
        keys = _keys(repo, swaps)
        with self._turn:
            while self._is_unsynced(keys) and not self._refusal:
                self._sync_all()
            applied = self._apply(repo, rows, keys, swaps, log)
            if applied.swapped:
                self._await_sync()
        return applied

    def _try_apply(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow]
    ) -> Applied | None:
        keys = _keys(repo, swaps)
        if not self._turn.acquire(blocking=False):
            return None
        try:
            return None if self._is_unsynced(keys) else self._apply(repo, rows, keys, swaps, log)
        finally:
            self._turn.release()

    def _is_unsynced(self, keys: Sequence[bytes]) -> bool:
        """Whether the newest value of one of the refs is not durable."""
        return not self._durable.keys().isdisjoint(keys)

    def _apply(
        self,
        repo: str,
        rows: Sequence[Row],
        keys: Sequence[bytes],
        swaps: Sequence[RefSwap],
        log: Sequence[LogRow],
    ) -> Applied:
        """Write to the refs under these keys, whose newest values must be durable. Does not sync.

        The swaps are of different refs.
        """
        self._check_refusal()
        prefix, writes = prefix_of(repo), self._writes()
        stored = self._messages(prefix, rows)
        unique = [
            (row.id, message)
            for row, message in zip(rows, stored, strict=True)
            if row.kind == UNIQUE_KIND
        ]
        before = dict(zip(keys, self._read.several(self._refs, keys), strict=True))
        expected = [swap.expected for swap in swaps]
        if any(message is not None for _, message in unique) or not all(
            map(is_ref, before.values(), expected)
        ):
            fresh = frozenset(id for id, message in unique if message is None)
            return Applied(swapped=False, new=fresh)
        new = writes.insert(prefix, rows, stored)
        writes.append(repo, log)
        for key, swap in zip(keys, swaps, strict=True):
            writes.move(key, swap.new)
        self._write(writes.batch, before)
        return Applied(swapped=True, new=new)

    def _writes(self) -> Writes:
        return Writes(self._in_refs, self._in_rows)

    def _messages(self, prefix: bytes, rows: Sequence[Row]) -> list[bytes | None]:
        """What is stored under the ids of the rows."""
        return self._read.several(self._rows, [prefix + row.id for row in rows])

    def _delete(self, keys: Iterable[bytes], family: ColumnFamily | None) -> None:
        keys = iter(keys)
        while some := list(islice(keys, DELETE_AT_ONCE)):
            batch = WriteBatch(raw_mode=True)
            for key in some:
                batch.delete(key, family)
            with self._turn:
                self._write_durably(batch)

    def _write_durably(self, batch: WriteBatch) -> None:
        self._write(batch)
        self._await_sync()

    def _write(self, batch: WriteBatch, before: Mapping[bytes, bytes | None] = _NO_REFS) -> None:
        """Write without a sync. Until there was one, readers get the refs in `before`."""
        if os.getpid() != self._process:
            raise StoreLocked(
                "This store was opened by the process that this one was forked from, and RocksDB "
                "serves one process; open it after the fork, in one of them"
            )
        self._notice_lost_files()
        self._check_refusal()
        if not self.needs_sync:
            self._write_now(batch)
            return
        self._written += 1
        newest = self._written
        self._durable.update((key, (newest, value)) for key, value in before.items())
        try:
            self._write_now(batch)
        except Exception:
            for key in before:
                self._durable.pop(key, None)  # Nothing was written.
            raise

    def _await_sync(self) -> None:
        """Return when everything written so far is durable."""
        newest = self._written
        while self._synced < newest:
            self._check_refusal()
            self._sync_all()

    def _write_now(self, batch: WriteBatch) -> None:
        try:
            self._db.write(batch)
        except Exception as error:
            meaning = WRITING.translate(error, self._path)
            if meaning is error:
                raise
            self._write_error = error
            raise meaning from error
        self._write_error = None

    def _sync_all(self) -> None:
        """Sync everything written so far, or wait for the sync that is in progress."""
        if self._syncing:
            self._turn.wait()
            return
        self._syncing, upto, done = True, self._written, False
        newest = self._db.latest_sequence_number()
        self._turn.release()
        try:
            self._db.flush_wal(sync=True)
            done = True
            if self._note is not None:
                self._note.write(newest)
        except Exception as error:  # noqa: BLE001 - It fails all writers that wait.
            self._refusal = (
                f"The store '{self._path}' could not sync to disk ({error}) and refuses all writes"
                " since. Check the disk, then reopen the store: restart the server"
            )
        finally:
            self._turn.acquire()
            self._syncing = False
            if done:
                self._synced = upto
                for key in [key for key, (number, _) in self._durable.items() if number <= upto]:
                    del self._durable[key]
            self._turn.notify_all()

    def _notice_lost_files(self) -> None:
        if self._files is not None:
            self._refuse_for(self._files.lost())

    def _refuse_for(self, lost: str | None) -> None:
        """Writes stay refused: a file that was put back may not be the one that was lost."""
        if lost is not None and not self._refusal:
            self._refusal = lost_file_message(self._path, lost)

    def _check_refusal(self) -> None:
        if self._refusal:
            raise StoreCannotWrite(self._refusal)


def _keys(repo: str, swaps: Sequence[RefSwap]) -> list[bytes]:
    prefix = prefix_of(repo)
    return [prefix + swap.name.encode() for swap in swaps]


def _is_key(key: bytes, prefix: bytes, value: bytes) -> bool:
    return key == prefix + decode_ref(value, key.decode(errors="replace")).name.encode()

"""The files of an open RocksDB: lock, logs, Morag's note, and how often files are listed."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from rocksdict import Rdict

from morag.backend.rocksdb import opening as rocksdb_opening
from morag.backend.rocksdb.backend import RocksDBBackend
from morag.backend.rocksdb.open_files import SECONDS_BETWEEN_LISTINGS, RocksDBFiles
from morag.backend.rocksdb.synced_note import NAME as NOTE
from morag.errors import StoreCannotWrite, StoreLocked, StoreUrlInvalid
from morag.testing.backend_contract import a_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TAKE_THE_LOCK = """
import fcntl, sys
with open(sys.argv[1], "ab") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[RocksDBBackend]:
    backend = RocksDBBackend(tmp_path / "db")
    backend.insert_rows("r", [a_row(1)])
    yield backend
    backend.close()


class CountedListings:
    """A database that counts the listings of its files, and runs an action during each."""

    def __init__(self, db: Rdict, meanwhile: Callable[[], object] = int) -> None:
        self._db, self._meanwhile = db, meanwhile
        self.count = 0

    def live_files(self) -> list[dict[str, Any]]:
        self.count += 1
        self._meanwhile()
        return self._db.live_files()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


@contextmanager
def no_file_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class TestListing:
    def test_files_that_cannot_be_listed_are_not_reported_as_lost(
        self, backend: RocksDBBackend
    ) -> None:
        with no_file_descriptors():
            backend.check_writable()
            backend.insert_rows("r", [a_row(2)])
        backend.check_writable()
        backend.insert_rows("r", [a_row(3)])

    def test_a_newer_log_is_not_reported_as_lost_if_the_search_fails(self, tmp_path: Path) -> None:
        (tmp_path / "LOCK").touch()
        (tmp_path / "000001.log").touch()
        files = RocksDBFiles(tmp_path)
        (tmp_path / "000001.log").rename(tmp_path / "000002.log")
        with no_file_descriptors():
            assert files.lost() is None
        assert files.lost() is None
        (tmp_path / "000002.log").unlink()
        assert files.lost() == str(tmp_path / "000002.log")

    def test_files_are_listed_at_most_once_a_second(
        self, backend: RocksDBBackend, tmp_path: Path
    ) -> None:
        seconds, db = 7.0, CountedListings(backend._db)
        files = RocksDBFiles(tmp_path / "db", lambda: seconds)
        for _ in range(9):
            assert files.lost_of_all(db) is None  # type: ignore[arg-type]
        assert db.count == 1
        (tmp_path / "db" / "CURRENT").rename(tmp_path / "CURRENT")
        seconds += SECONDS_BETWEEN_LISTINGS
        assert files.lost_of_all(db) == str(tmp_path / "db" / "CURRENT")  # type: ignore[arg-type]
        (tmp_path / "CURRENT").rename(tmp_path / "db" / "CURRENT")

    def test_writers_do_not_wait_for_a_listing(
        self, backend: RocksDBBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with ThreadPoolExecutor(1) as pool:

            def write() -> None:
                assert pool.submit(backend.insert_rows, "r", [a_row(2)]).result(timeout=30)

            db = CountedListings(backend._db, write)
            monkeypatch.setattr(backend, "_db", db)
            backend.check_writable()
        assert db.count == 1

    def test_a_new_log_is_watched_before_the_old_one_is_deleted(
        self, backend: RocksDBBackend, tmp_path: Path
    ) -> None:
        """Between the two, RocksDB writes the tables with the content of the old log."""
        new = tmp_path / "db" / "999999.log"
        new.write_bytes(b"as if RocksDB had gone on in it")
        backend.check_writable()
        new.unlink()
        with pytest.raises(StoreCannotWrite, match=r"lost its file '.*/999999\.log'"):
            backend.insert_rows("r", [a_row(2)])


class TestLock:
    def test_a_store_cannot_be_opened_under_two_names(
        self, backend: RocksDBBackend, tmp_path: Path
    ) -> None:
        """RocksDB compares names, so one process could open a directory under two of them."""
        (tmp_path / "link").symlink_to(tmp_path / "db")
        for name in ("link", "db/../db", "link/../db"):
            with pytest.raises(StoreLocked, match="in this process"):
                RocksDBBackend(tmp_path / name)

    def test_a_lock_that_another_process_takes_during_opening_is_reported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other process takes it after RocksDB's check and before the lock on the file."""
        RocksDBBackend(tmp_path).close()
        command = [sys.executable, "-c", TAKE_THE_LOCK, str(tmp_path / "LOCK")]
        others: list[subprocess.Popen[bytes]] = []

        def check_too_late(*arguments: Any) -> Any:
            try:
                return Rdict(*arguments)
            finally:
                pipe = subprocess.PIPE
                others.append(subprocess.Popen(command, stdin=pipe, stdout=pipe))
                assert others[-1].stdout is not None
                assert others[-1].stdout.readline() == b"locked\n"

        monkeypatch.setattr(rocksdb_opening, "Rdict", check_too_late)
        with (
            pytest.raises(StoreLocked, match="in use by another process"),
            rocksdb_opening._locked(tmp_path),
        ):
            pass
        (other,) = others
        other.communicate()

    def test_a_replaced_lock_is_reported_when_the_store_is_closed(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        backend = RocksDBBackend(tmp_path)
        (tmp_path / "LOCK").rename(tmp_path / "old-lock")
        (tmp_path / "LOCK").touch()
        backend.close()
        (line,) = caplog.messages
        assert f"has lost its file '{tmp_path / 'LOCK'}'" in line


class TestNote:
    def test_a_note_that_cannot_be_written_is_reported_and_the_database_is_closed(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "db").mkdir()
        RocksDBBackend(tmp_path / "db").close()
        note = tmp_path / "db" / NOTE
        note.unlink()
        note.mkdir()
        with pytest.raises(StoreUrlInvalid, match=rf"{NOTE}.*may create or write"):
            RocksDBBackend(tmp_path / "db")
        note.rmdir()
        RocksDBBackend(tmp_path / "db").close()

"""The embedded backends: the shared contracts, and the promises of each engine."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from rocksdict import Options, Rdict

from morag.backend.base import LogRow, Ref, RefSwap
from morag.backend.memory import MemoryBackend
from morag.backend.rocksdb.backend import RocksDBBackend
from morag.backend.sqlite.backend import SQLiteBackend
from morag.config import Settings
from morag.errors import (
    BadRequest,
    RepositoryCorrupt,
    ServiceUnavailable,
    StoreBusy,
    StoreCannotWrite,
    StoreLocked,
    StoreUrlInvalid,
)
from morag.protobuf import bytes_field, int_field, text_field
from morag.testing.backend_contract import (
    MAIN,
    MOVED,
    PREVIOUS,
    AppliesWithLogContract,
    BackendContract,
    DurableBackendContract,
    QuickSwapsTogetherContract,
    SwapsTogetherContract,
    a_custom_row,
    a_row,
    an_id,
    at_once,
    create,
    line,
    move,
    read,
    tried,
    try_once,
)
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.backend.slow_disk import SlowDisk
from tests.safety.history_checks import put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from morag.testing.backend_contract import FullBackend


IMPOSSIBLE_PATHS = ("file/below", "nul\0byte", "long" * 100)
"""Relative to a directory with a file named `file`."""


class TestMemory(BackendContract, QuickSwapsTogetherContract):
    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return MemoryBackend()

    def test_try_apply_does_not_wait_for_another_thread(self, backend: MemoryBackend) -> None:
        with backend._lock:
            assert try_once(backend, 1, None, MAIN) is None
        assert tried(backend, 1, None, MAIN)


class Reopening:
    def __init__(self, open: Callable[[], FullBackend]) -> None:
        self._open = open
        self.backend = open()

    def __call__(self) -> FullBackend:
        self.backend.close()
        self.backend = self._open()
        return self.backend


class OnDisk(DurableBackendContract, AppliesWithLogContract, SwapsTogetherContract):
    def open(self, path: Path) -> FullBackend:
        raise NotImplementedError

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Iterator[Reopening]:
        reopening = Reopening(lambda: self.open(tmp_path / "store"))
        yield reopening
        reopening.backend.close()

    @pytest.fixture
    def backend(self, reopen: Reopening) -> FullBackend:
        return reopen.backend


class TestRocksDB(OnDisk, QuickSwapsTogetherContract):
    def open(self, path: Path) -> FullBackend:
        return RocksDBBackend(path)


class TestRocksDBWithoutSync(OnDisk, QuickSwapsTogetherContract):
    def open(self, path: Path) -> FullBackend:
        return RocksDBBackend(path, sync=False)


class TestSQLite(OnDisk):
    def open(self, path: Path) -> FullBackend:
        return SQLiteBackend(path)


class TestSQLiteWithoutSync(OnDisk):
    def open(self, path: Path) -> FullBackend:
        return SQLiteBackend(path, sync=False)


class TestRocksDBLayout:
    """The stored keys and values, as Nessie reads them."""

    def test_keys_and_values_have_the_format_of_nessie(self, tmp_path: Path) -> None:
        backend = RocksDBBackend(tmp_path)
        row = a_row(1, micros=1000)
        custom = a_custom_row(b"custom", "v-1", micros=2000)
        ref = Ref("refs/heads/main", an_id("p"), False, 77, None, PREVIOUS[:1])
        backend.apply("", [row, custom], RefSwap(ref.name, None, ref), [LogRow(b"k", b"d")])
        backend.swap_ref("repo", RefSwap("int/refs", None, Ref("int/refs", an_id("q"))))
        backend.close()

        inside = text_field(1, "c-s") + bytes_field(2, b"text") + int_field(3, 1)
        previous = bytes_field(1, PREVIOUS[0].pointer) + int_field(2, PREVIOUS[0].until_micros)
        assert stored(tmp_path) == {
            "default": {b":k": b"d"},
            "nessie_refs": {
                b":refs/heads/main": text_field(1, ref.name)
                + bytes_field(2, ref.pointer)
                + int_field(4, 77)
                + bytes_field(6, previous),
                b"repo:int/refs": text_field(1, "int/refs") + bytes_field(2, an_id("q")),
            },
            "nessie_objects": {
                b":" + row.id: row.data + int_field(11, 1000),
                b":custom": bytes_field(9, inside + text_field(4, "v-1")) + int_field(11, 2000),
            },
        }

    def test_an_object_without_a_time_can_be_read(self, tmp_path: Path) -> None:
        RocksDBBackend(tmp_path).close()
        families = Rdict.list_cf(str(tmp_path))
        options = Options(raw_mode=True)
        db = Rdict(str(tmp_path), options, {name: Options(raw_mode=True) for name in families})
        objects = db.get_column_family("nessie_objects")
        objects[b":" + an_id(1)] = a_row(1).data
        objects.close()
        db.close()
        backend = RocksDBBackend(tmp_path)
        assert backend.read_rows("", [an_id(1)]) == {an_id(1): a_row(1, micros=0)}
        backend.close()

    def test_an_id_that_could_belong_to_another_repository_is_refused(self, tmp_path: Path) -> None:
        backend = RocksDBBackend(tmp_path)
        with pytest.raises(BadRequest, match="b:id"):
            backend.insert_rows("a", [a_custom_row(b"b:id", "1")])
        assert list(backend.scan_rows("a")) == []
        backend.close()


class TestRocksDBOpening:
    def test_a_second_process_is_refused(self, tmp_path: Path) -> None:
        backend = RocksDBBackend(tmp_path / "db")
        code = f"""
from morag.backend.rocksdb.backend import RocksDBBackend
from morag.errors import StoreLocked
try:
    RocksDBBackend({str(tmp_path / "db")!r})
except StoreLocked as error:
    print(error)
"""
        answer = run(code)
        backend.close()
        assert str(tmp_path / "db") in answer
        assert "stop" in answer
        assert run(code) == ""

    def test_a_second_opening_in_one_process_is_refused(self, tmp_path: Path) -> None:
        backend = RocksDBBackend(tmp_path)
        with pytest.raises(StoreLocked, match="in this process") as error:
            RocksDBBackend(tmp_path)
        assert str(tmp_path) in str(error.value)
        backend.insert_rows("r", [a_row(1)])
        backend.close()
        RocksDBBackend(tmp_path).close()

    def test_a_missing_directory_is_made_with_its_parents(self, tmp_path: Path) -> None:
        RocksDBBackend(tmp_path / "a" / "b" / "c").close()
        assert (tmp_path / "a" / "b" / "c" / "CURRENT").exists()

    def test_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StoreUrlInvalid, match="not a directory"):
            RocksDBBackend(tmp_path / "file")

    @pytest.mark.parametrize("path", IMPOSSIBLE_PATHS)
    def test_an_impossible_path_is_refused(self, path: str, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        full = tmp_path / path
        with pytest.raises(StoreUrlInvalid, match="directory") as error:
            RocksDBBackend(full)
        assert repr(str(full))[1:-1] in str(error.value)

    def test_a_directory_without_permission_is_refused(self, tmp_path: Path) -> None:
        """A directory named LOCK has the same effect, also for root, which has every permission."""
        (tmp_path / "LOCK").mkdir()
        with pytest.raises(StoreUrlInvalid, match="may create or write") as error:
            RocksDBBackend(tmp_path)
        assert str(tmp_path) in str(error.value)

    @pytest.mark.parametrize(
        ("pattern", "damage"),
        [
            ("CURRENT", b"rubbish"),
            ("CURRENT", b"MANIFEST-999999\n"),
            ("MANIFEST*", b"rubbish"),
            ("MANIFEST*", None),
            ("CURRENT", None),
            ("*.sst", b"rubbish"),
            ("*.sst", None),
        ],
    )
    def test_damage_is_reported_with_the_path(
        self, pattern: str, damage: bytes | None, tmp_path: Path
    ) -> None:
        backend = RocksDBBackend(tmp_path)
        create(backend, MAIN)
        backend.close()
        for path in tmp_path.glob(pattern):
            if damage is None:
                path.unlink()
            else:
                path.write_bytes(damage)
        with pytest.raises((RepositoryCorrupt, StoreUrlInvalid), match="backup") as error:
            RocksDBBackend(tmp_path)
        assert str(tmp_path) in str(error.value)

    def test_a_directory_with_other_files_is_refused_unchanged(self, tmp_path: Path) -> None:
        (tmp_path / "letter.txt").write_text("Dear Nessie")
        with pytest.raises(StoreUrlInvalid, match="name a new or an empty directory"):
            RocksDBBackend(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]

    def test_the_database_of_another_program_is_refused_unchanged(self, tmp_path: Path) -> None:
        database = Rdict(str(tmp_path))
        database["a"] = 1
        database.close()
        with pytest.raises(StoreUrlInvalid, match="another program's"):
            RocksDBBackend(tmp_path)
        database = Rdict(str(tmp_path))
        assert database["a"] == 1
        database.close()

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_cannot_write(self, tmp_path: Path) -> None:
        """The writes of a child would be lost, because the log belongs to the parent."""
        backend = RocksDBBackend(tmp_path)
        child = os.fork()
        if child == 0:
            try:
                create(backend, MAIN)
            except StoreLocked:
                os._exit(7)
            finally:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert create(backend, MAIN)
        backend.close()

    def test_a_damaged_ref_is_named(self, tmp_path: Path) -> None:
        backend = RocksDBBackend(tmp_path)
        backend._refs[b"r:" + MAIN.name.encode()] = b"\x0a\x09cut"
        for work in (
            lambda: backend.read_refs("r", [MAIN.name]),
            lambda: move(backend, MAIN, MOVED),
            lambda: backend.erase("r"),
        ):
            with pytest.raises(RepositoryCorrupt, match=MAIN.name):
                work()
        backend.close()

    def test_completed_writes_survive_a_process_that_dies(self, tmp_path: Path) -> None:
        run(f"""
import os
from morag.backend.rocksdb.backend import RocksDBBackend
from morag.testing.backend_contract import a_row, create, MAIN
backend = RocksDBBackend({str(tmp_path)!r})
create(backend, MAIN)
backend.insert_rows("r", [a_row(1)])
os._exit(0)
""")
        backend = RocksDBBackend(tmp_path)
        assert read(backend, MAIN.name) == MAIN
        assert list(backend.scan_rows("r")) == [a_row(1)]
        backend.close()


class TestRocksDBSync:
    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[RocksDBBackend]:
        backend = RocksDBBackend(tmp_path)
        yield backend
        backend.close()

    @pytest.fixture
    def disk(self, backend: RocksDBBackend, monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
        create(backend, MAIN)
        disk = SlowDisk(backend._db)
        monkeypatch.setattr(backend, "_db", disk)
        return disk

    @pytest.fixture
    def pool(self, disk: SlowDisk) -> Iterator[ThreadPoolExecutor]:
        with ThreadPoolExecutor(20) as pool:
            yield pool
            disk.go.set()

    def test_a_read_returns_the_last_durable_ref(
        self, backend: RocksDBBackend, disk: SlowDisk, pool: ThreadPoolExecutor
    ) -> None:
        moving = pool.submit(move, backend, MAIN, MOVED)
        assert disk.syncing.wait(timeout=30)
        assert read(backend, MAIN.name) == MAIN
        assert not moving.done()
        disk.go.set()
        assert moving.result(timeout=30)
        assert read(backend, MAIN.name) == MOVED

    def test_a_ref_is_not_found_before_its_creation_is_durable(
        self, backend: RocksDBBackend, disk: SlowDisk, pool: ThreadPoolExecutor
    ) -> None:
        new = Ref("new", an_id("new"))
        creating = pool.submit(create, backend, new)
        assert disk.syncing.wait(timeout=30)
        assert backend.read_refs("r", ["new"]) == {}
        disk.go.set()
        assert creating.result(timeout=30)
        assert read(backend, "new") == new

    def test_the_next_swap_of_a_ref_waits_until_the_last_is_durable(
        self, backend: RocksDBBackend, disk: SlowDisk, pool: ThreadPoolExecutor
    ) -> None:
        first = pool.submit(move, backend, MAIN, MOVED)
        assert disk.syncing.wait(timeout=30)
        late = pool.submit(move, backend, MAIN, None)
        next = pool.submit(move, backend, MOVED, replace(MOVED, deleted=True))
        disk.go.set()
        assert first.result(timeout=30)
        assert not late.result(timeout=30)
        assert next.result(timeout=30)

    def test_writes_during_a_sync_share_the_next_one(
        self, backend: RocksDBBackend, disk: SlowDisk, pool: ThreadPoolExecutor
    ) -> None:
        first = pool.submit(backend.insert_rows, "r", [a_row("first")])
        assert disk.syncing.wait(timeout=30)
        others = [pool.submit(create, backend, Ref(f"{n}", an_id(n))) for n in range(16)]
        while backend._written < 2 + 16:
            assert not any(other.done() for other in others)
        disk.go.set()
        assert first.result(timeout=30)
        assert all(other.result(timeout=30) for other in others)
        assert disk.syncs == 2

    def test_a_failed_sync_fails_all_waiting_and_all_later_writes(
        self, backend: RocksDBBackend, disk: SlowDisk, pool: ThreadPoolExecutor
    ) -> None:
        disk.error = OSError("no space left")
        first = pool.submit(backend.insert_rows, "r", [a_row("first")])
        assert disk.syncing.wait(timeout=30)
        failing = [pool.submit(create, backend, Ref(f"{n}", an_id(n))) for n in range(8)]
        while backend._written < 2 + 8:
            assert not any(each.done() for each in failing)
        disk.go.set()
        assert first.result(timeout=30)
        for each in failing:
            with pytest.raises(ServiceUnavailable, match="no space left"):
                each.result(timeout=30)
        disk.error = None
        for write in (
            lambda: backend.insert_rows("r", [a_row(1)]),
            lambda: backend.append_log("r", [line(1)]),
            lambda: backend.swap_row("r", a_row(2), None),
            lambda: move(backend, MAIN, MOVED),
            lambda: create(backend, Ref("0", an_id(0))),
        ):
            with pytest.raises(ServiceUnavailable, match="reopen"):
                write()
        with pytest.raises(StoreCannotWrite, match="reopen"):
            backend.check_writable()

    def test_try_apply_waits_neither_for_a_thread_nor_for_a_sync(
        self, backend: RocksDBBackend, disk: SlowDisk, pool: ThreadPoolExecutor
    ) -> None:
        with backend._turn:
            assert try_once(backend, 1, MAIN, MOVED) is None
        moving = pool.submit(move, backend, MAIN, MOVED)
        assert disk.syncing.wait(timeout=30)
        assert try_once(backend, 1, MOVED, MAIN) is None, "the move of this ref is not durable"
        assert backend.read_rows("r", [an_id(1)]) == {}
        assert tried(backend, 2, None, Ref("other", an_id(2)))
        assert backend.read_refs("r", ["other"]) == {}
        assert not moving.done()
        disk.go.set()
        backend.sync()
        assert moving.result(timeout=30)
        assert backend.read_refs("r", ["other"]) == {"other": Ref("other", an_id(2))}

    def test_several_writes_share_one_sync(self, backend: RocksDBBackend, disk: SlowDisk) -> None:
        disk.go.set()
        for n in range(9):
            assert tried(backend, n, None, Ref(f"{n}", an_id(n)))
        assert disk.syncs == 0
        backend.sync()
        backend.sync()
        assert disk.syncs == 1

    def test_after_a_failed_sync_nothing_is_tried(
        self, backend: RocksDBBackend, disk: SlowDisk
    ) -> None:
        disk.go.set()
        disk.fail_at, disk.error = 1, OSError("no space left")
        assert tried(backend, 1, MAIN, MOVED)
        with pytest.raises(StoreCannotWrite, match="no space left"):
            backend.sync()
        disk.error = None
        with pytest.raises(StoreCannotWrite, match="no space left"):
            backend.sync()
        with pytest.raises(StoreCannotWrite, match="no space left"):
            try_once(backend, 2, None, Ref("other", an_id(2)))
        assert try_once(backend, 2, MOVED, MAIN) is None
        assert read(backend, MAIN.name) == MAIN

    def test_closing_syncs_what_was_tried(
        self, backend: RocksDBBackend, disk: SlowDisk, tmp_path: Path
    ) -> None:
        disk.go.set()
        assert tried(backend, 1, MAIN, MOVED)
        backend.close()
        assert disk.syncs == 1
        reopened = RocksDBBackend(tmp_path)
        assert read(reopened, MAIN.name) == MOVED
        reopened.close()

    def test_a_failed_write_is_reported_until_a_write_succeeds(
        self, backend: RocksDBBackend, disk: SlowDisk
    ) -> None:
        disk.go.set()
        backend.check_writable()
        disk.write_error = Exception("IO error: No space left on device")
        for _ in range(2):
            with pytest.raises(StoreCannotWrite, match="No space left"):
                move(backend, MAIN, MOVED)
            with pytest.raises(StoreCannotWrite, match="No space left"):
                backend.check_writable()
        disk.write_error = None
        backend.check_writable()
        assert move(backend, MAIN, MOVED)

    def test_a_ref_whose_sync_failed_is_read_in_its_last_durable_state(
        self, backend: RocksDBBackend, disk: SlowDisk, pool: ThreadPoolExecutor
    ) -> None:
        disk.fail_at, disk.error = 1, OSError("no space left")
        moving = pool.submit(move, backend, MAIN, MOVED)
        assert disk.syncing.wait(timeout=30)
        waiting = [pool.submit(move, backend, ref, None) for ref in (MAIN, MOVED)]
        disk.go.set()
        for each in (moving, *waiting):
            with pytest.raises(ServiceUnavailable, match="no space left"):
                each.result(timeout=30)
        assert read(backend, MAIN.name) == MAIN
        disk.error = None
        for ref in (MAIN, MOVED):
            with pytest.raises(ServiceUnavailable):
                move(backend, ref, None)
        assert read(backend, MAIN.name) == MAIN
        pool.submit(backend.close).result(timeout=30)

    def test_a_ref_whose_write_failed_can_be_moved_later(
        self, backend: RocksDBBackend, disk: SlowDisk, pool: ThreadPoolExecutor
    ) -> None:
        disk.go.set()
        disk.write_error = OSError("not now")
        with pytest.raises(OSError, match="not now"):
            move(backend, MAIN, MOVED)
        assert read(backend, MAIN.name) == MAIN
        disk.write_error = None
        assert pool.submit(move, backend, MAIN, MOVED).result(timeout=30)
        assert read(backend, MAIN.name) == MOVED
        disk.write_error = OSError("not now")
        with pytest.raises(OSError, match="not now"):
            backend.append_log("r", [line(1)])
        pool.submit(backend.close).result(timeout=30)

    def test_an_interrupted_sync_is_repeated(
        self, backend: RocksDBBackend, disk: SlowDisk, pool: ThreadPoolExecutor
    ) -> None:
        disk.go.set()
        disk.fail_at, disk.error = 1, KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            move(backend, MAIN, MOVED)
        assert read(backend, MAIN.name) == MAIN
        disk.error = None
        deleted = replace(MOVED, deleted=True)
        assert pool.submit(move, backend, MOVED, deleted).result(timeout=30)
        assert disk.syncs == 3, "one failed; one for the interrupted move, one for this"
        assert read(backend, MAIN.name) == deleted

    def test_a_commit_whose_sync_failed_is_not_acknowledged(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        backend = RocksDBBackend(tmp_path / "repo")
        repo = Repository(backend, Settings(), World())
        before = repo.commit("main", [put("good")], "good").hash
        disk = SlowDisk(backend._db)
        disk.go.set()
        disk.fail_at, disk.error = 1, OSError("no space left")
        monkeypatch.setattr(backend, "_db", disk)
        for _ in range(2):
            with pytest.raises(ServiceUnavailable, match="reopen"):
                repo.commit("main", [put("lost")], "lost")
            assert repo.references.get("main").hash == before
        repo.close()

    def test_closing_waits_for_writers(
        self, backend: RocksDBBackend, disk: SlowDisk, pool: ThreadPoolExecutor
    ) -> None:
        writing = [pool.submit(backend.append_log, "r", [line(n)]) for n in range(8)]
        while backend._written < 1 + 8:
            assert not any(each.done() for each in writing)
        closing = pool.submit(backend.close)
        disk.go.set()
        closing.result(timeout=30)
        for each in writing:
            each.result(timeout=30)


class TestSQLiteLayout:
    def test_tables_have_the_format_of_nessie(self, tmp_path: Path) -> None:
        backend = SQLiteBackend(tmp_path / "morag.db")
        row, custom = a_row(1, micros=1000), a_custom_row(b"custom", "v-1", micros=2000)
        plain, full = (
            Ref("plain", an_id(1)),
            Ref("full", an_id(2), True, 77, an_id(3), PREVIOUS[:2]),
        )
        backend.insert_rows("", [row, custom])
        for ref in (plain, full):
            backend.swap_ref("", RefSwap(ref.name, None, ref))
        backend.close()

        previous = [
            bytes_field(1, entry.pointer) + int_field(2, entry.until_micros)
            for entry in PREVIOUS[:2]
        ]
        column = b"".join(bytes([len(message)]) + message for message in previous)
        db = sqlite3.connect(tmp_path / "morag.db")
        refs = db.execute("SELECT * FROM refs2 ORDER BY ref_name")
        assert [name for name, *_ in refs.description] == [
            *("repo", "ref_name", "pointer", "ext_info", "prev_ptr", "created_at", "deleted")
        ]
        assert refs.fetchall() == [
            ("", "full", an_id(2), an_id(3), column, 77, 1),
            ("", "plain", an_id(1), None, None, None, 0),
        ]
        rows = db.execute("SELECT * FROM objs2 ORDER BY obj_ref")
        assert [name for name, *_ in rows.description] == [
            *("repo", "obj_id", "obj_type", "obj_vers", "obj_value", "obj_ref")
        ]
        assert rows.fetchall() == [
            ("", row.id, "v", None, row.data + b"\x58\x00", 1000),
            ("", b"custom", "c-s", "v-1", custom.data + b"\x58\x00", 2000),
        ]
        db.close()

    def test_a_row_with_nulls_where_nessie_allows_them_can_be_read(self, tmp_path: Path) -> None:
        backend = SQLiteBackend(tmp_path / "morag.db")
        db = sqlite3.connect(tmp_path / "morag.db", isolation_level=None)
        db.execute(
            "INSERT INTO objs2 VALUES ('', ?, 'v', NULL, ?, NULL)", (an_id(1), a_row(1).data)
        )
        db.close()
        assert backend.read_rows("", [an_id(1)]) == {an_id(1): a_row(1, micros=0)}
        backend.close()


class TestSQLiteSharing:
    def test_readers_do_not_wait_for_a_writer(self, tmp_path: Path) -> None:
        backend = SQLiteBackend(tmp_path / "morag.db")
        create(backend, MAIN)
        with backend._write() as db:
            db.execute("DELETE FROM refs2")
            with ThreadPoolExecutor(1) as pool:
                found = pool.submit(read, backend, MAIN.name).result(timeout=10)
        assert found == MAIN
        assert backend.read_refs("r", [MAIN.name]) == {}
        backend.close()

    def test_a_failed_write_leaves_nothing_behind(self, tmp_path: Path) -> None:
        backend = SQLiteBackend(tmp_path / "morag.db")
        unfit: Any = replace(a_row(2), referenced_micros=2**64)
        with pytest.raises(OverflowError):
            backend.insert_rows("r", [a_row(1), unfit])
        assert list(backend.scan_rows("r")) == []
        assert create(backend, MAIN)
        backend.close()

    def test_processes_that_open_one_new_file_together_lose_no_swap(self, tmp_path: Path) -> None:
        code = f"""
import os
from msgspec.structs import replace
from morag.backend.base import UNIQUE_KIND, Ref, RefSwap
from morag.backend.sqlite.backend import SQLiteBackend
from morag.testing.backend_contract import a_row, an_id, create, read
backend = SQLiteBackend({str(tmp_path / "morag.db")!r}, sync=False)
create(backend, Ref("count", an_id(0), created_micros=1))
for n in range(50):
    unique = a_row((os.getpid(), n), UNIQUE_KIND)
    while True:
        now = read(backend, "count")
        new = replace(now, created_micros=now.created_micros + 1)
        if backend.apply("r", [unique], RefSwap("count", now, new)).swapped:
            break
backend.close()
"""
        assert at_once(run, [code] * 4) == [""] * 4
        backend = SQLiteBackend(tmp_path / "morag.db")
        assert read(backend, "count").created_micros == 1 + 4 * 50
        assert len(list(backend.scan_rows("r"))) == 4 * 50
        backend.close()

    def test_a_closed_backend_refuses(self, tmp_path: Path) -> None:
        backend = SQLiteBackend(tmp_path / "morag.db")
        backend.close()
        with pytest.raises(sqlite3.ProgrammingError):
            backend.read_refs("r", ["main"])
        with pytest.raises(sqlite3.ProgrammingError):
            create(backend, MAIN)

    def test_a_full_database_is_reported_until_there_is_room(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        backend = SQLiteBackend(tmp_path / "morag.db")
        backend.check_writable()
        backend._writer.execute("PRAGMA max_page_count = 1")  # No page can be added.
        rows = [replace(a_row(n), data=bytes(5000)) for n in range(9)]
        with pytest.raises(StoreCannotWrite, match=r"morag\.db' cannot write .*full"):
            backend.insert_rows("r", rows)
        assert list(backend.scan_rows("r")) == []
        monkeypatch.setattr("morag.backend.sqlite.backend._ROOM_BYTES", 1 << 62)
        with pytest.raises(StoreCannotWrite, match="full"):
            backend.check_writable()
        monkeypatch.undo()
        backend.check_writable()
        backend._writer.execute(f"PRAGMA max_page_count = {1 << 20}")
        assert len(backend.insert_rows("r", rows)) == 9
        backend.close()

    def test_a_missing_directory_is_made(self, tmp_path: Path) -> None:
        SQLiteBackend(tmp_path / "a" / "b" / "morag.db").close()
        assert (tmp_path / "a" / "b" / "morag.db").exists()

    def test_processes_can_create_one_file_together(self, tmp_path: Path) -> None:
        code = f"""
import time
from morag.backend.sqlite.backend import SQLiteBackend
for round in range(25):
    # All processes start at the same time of the clock.
    time.sleep(max(0, {time.time() + 2!r} + round * 0.05 - time.time()))
    SQLiteBackend(f"{tmp_path}/{{round}}.db").close()
"""
        assert at_once(run, [code] * 6) == [""] * 6

    def test_opening_a_locked_file_times_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("morag.backend.sqlite.backend.BUSY_SECONDS", 0.2)
        other = sqlite3.connect(tmp_path / "morag.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreBusy, match=r"morag\.db"):
            SQLiteBackend(tmp_path / "morag.db")
        other.execute("ROLLBACK")
        other.close()
        SQLiteBackend(tmp_path / "morag.db").close()

    @pytest.mark.parametrize("path", IMPOSSIBLE_PATHS)
    def test_an_impossible_path_is_refused(self, path: str, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        full = tmp_path / path
        with pytest.raises(StoreUrlInvalid, match="name a file") as error:
            SQLiteBackend(full)
        assert repr(str(full))[1:-1] in str(error.value)

    def test_a_directory_without_permission_is_refused(self) -> None:
        with pytest.raises(StoreUrlInvalid, match=r"'/proc/morag.db'.*may create or write"):
            SQLiteBackend("/proc/morag.db")

    @pytest.mark.parametrize("table", ["letters (a)", "objs2 (a)", "refs2 (a)"])
    def test_the_database_of_another_program_is_refused_unchanged(
        self, table: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "other.db"
        database = sqlite3.connect(path)
        database.execute(f"CREATE TABLE {table}")
        database.commit()
        database.close()
        with pytest.raises(StoreUrlInvalid, match="name another file"):
            SQLiteBackend(path)
        database = sqlite3.connect(path)
        assert len(list(database.execute("SELECT * FROM sqlite_master"))) == 1
        database.close()

    def test_an_interrupt_after_begin_ends_the_transaction(self, tmp_path: Path) -> None:
        backend = SQLiteBackend(tmp_path / "morag.db")
        begin = backend._begin

        def interrupted() -> None:
            begin()
            raise KeyboardInterrupt

        backend._begin = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            create(backend, MAIN)
        backend._begin = begin  # type: ignore[method-assign]
        assert create(backend, MAIN)
        backend.close()

    @pytest.mark.parametrize("content", [b"short", b"This is a letter. " * 1000])
    def test_a_file_that_is_not_a_database_is_refused_unchanged(
        self, content: bytes, tmp_path: Path
    ) -> None:
        path = tmp_path / "letter.txt"
        path.write_bytes(content)
        with pytest.raises(StoreUrlInvalid, match=r"letter.txt.*name another file"):
            SQLiteBackend(path)
        assert path.read_bytes() == content

    def test_damage_is_reported_with_the_path(self, tmp_path: Path) -> None:
        path = tmp_path / "morag.db"
        SQLiteBackend(path).close()
        path.write_bytes(path.read_bytes()[:100] + b"x" * 4000)
        with pytest.raises(RepositoryCorrupt, match=r"morag.db.*backup"):
            SQLiteBackend(path)

    @pytest.mark.parametrize("column", ["pointer = NULL", "prev_ptr = x'0901'"])
    def test_a_damaged_ref_is_named(self, column: str, tmp_path: Path) -> None:
        backend = SQLiteBackend(tmp_path / "morag.db")
        create(backend, MAIN)
        with backend._write() as db:
            db.execute(f"UPDATE refs2 SET {column}")
        with pytest.raises(RepositoryCorrupt, match=MAIN.name):
            backend.read_refs("r", [MAIN.name])
        backend.close()

    def test_a_directory_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(StoreUrlInvalid, match="is a directory"):
            SQLiteBackend(tmp_path)


def stored(path: Path) -> dict[str, dict[bytes, bytes]]:
    """All keys and values in the directory, read without the backend."""
    families = Rdict.list_cf(str(path))
    options = {name: Options(raw_mode=True) for name in families}
    db = Rdict(str(path), Options(raw_mode=True), options)
    content: Any = {name: dict(db.get_column_family(name).items()) for name in families}
    db.close()
    return dict(content)


def run(code: str) -> str:
    """Run the code in another process; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

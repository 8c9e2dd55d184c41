"""SQLite with damaged files: all commits are found, or opening is refused."""

from __future__ import annotations

import os
import sqlite3
import struct
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

import morag
from morag.backend.base import ObjId
from morag.backend.sqlite import write_ahead_log as sqlite_log
from morag.backend.sqlite.backend import SQLiteBackend
from morag.backend.sqlite.write_ahead_log import find_damage
from morag.backend.store_files import LEFT_OUT
from morag.config import Settings
from morag.errors import MoragError, RepositoryCorrupt
from tests.safety.history_checks import put
from tests.safety.killed_stores import COMMITS, committed, copied, flip, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HEADER = 32
FRAME = 24 + 4096
KILLED = "sqlite", "store.db"
FLIPS = 8
BEFORE_BOOT = 1_000_000_000
HAS_A_LOCK = """
import fcntl, struct, sys
with open(sys.argv[1], "rb+") as shared:
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 128, 1, 0)
    print(struct.unpack("hhqqi4x", fcntl.fcntl(shared, fcntl.F_GETLK, wanted))[0] != fcntl.F_UNLCK)
"""


@pytest.fixture
def log(store: Path) -> Path:
    return store.with_name(f"{store.name}-wal")


def shared(store: Path) -> Path:
    return store.with_name(f"{store.name}-shm")


def frames(log: Path) -> list[int]:
    """The offsets at which the frames of the log begin."""
    return list(range(HEADER, log.stat().st_size, FRAME))


def last_transaction(log: Path) -> int:
    """The offset of its first frame. Only a transaction's last frame has a size other than 0."""
    held = log.read_bytes()
    ends = [at for at in frames(log) if any(held[at + 4 : at + 8])]
    return ends[-2] + FRAME


def test_an_undamaged_log_is_read(store: Path, sync: str) -> None:
    assert committed(f"sqlite:{store}?sync={sync}") == messages()


def test_any_flipped_bit_is_refused_and_the_attempt_loses_nothing(
    store: Path, log: Path, sync: str
) -> None:
    """This holds for the last transaction too, and without the shared memory file."""
    shared(store).unlink()
    held, random, found = log.read_bytes(), Random(7), frames(log)
    heads = [at + n for at in (found[3], found[-2], found[-1]) for n in range(0, 24, 3)]
    pages = random.sample(range(last_transaction(log), len(held)), FLIPS)
    for offset in (0, 9, 17, 30, *heads, *pages, *random.sample(range(len(held)), FLIPS)):
        flip(log, offset, random.randrange(8))
        for read_only in (False, True):
            with pytest.raises(RepositoryCorrupt, match="accept_loss=on") as error:
                morag.open(f"sqlite:{store}?sync={sync}", read_only=read_only)
            assert f"'{log.name}' is damaged at byte" in str(error.value)
        log.write_bytes(held)
    assert committed(f"sqlite:{store}?sync={sync}") == messages()


def test_accept_loss_opens_the_intact_part_and_keeps_a_copy_of_the_log(
    store: Path, log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offset = last_transaction(log) + 500
    flip(log, offset)
    held = log.read_bytes()
    assert committed(f"sqlite:{store}?accept_loss=on") == messages(COMMITS - 1)
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert "has lost transactions" in warning.message
    copy_of_log = log.with_name(f"{log.name}{LEFT_OUT}")
    assert copy_of_log.name in warning.message
    assert copy_of_log.read_bytes() == held
    caplog.clear()
    assert committed(f"sqlite:{store}") == messages(COMMITS - 1)
    assert not caplog.records


def test_a_last_transaction_that_a_crash_left_unfinished_is_ignored(
    store: Path, log: Path, killed: Path
) -> None:
    held, last = log.read_bytes(), last_transaction(log)
    page = last + 4095 & ~4095
    for left in (
        held[:last],
        held[: last + 10],
        held[: last + FRAME + 77],
        held[:-1],
        held[:page] + bytes(len(held) - page),
        held[:page] + bytes(4096) + held[page + 4096 :],
        held[:page] + held[4096:8192] + held[page + 4096 :],
    ):
        copy = copied(killed, store.parent.with_name("crashed"))
        copy.with_name(log.name).write_bytes(left)
        shared(copy).unlink()
        assert committed(f"sqlite:{copy}") == messages(COMMITS - 1)


def test_a_log_without_known_committed_frames_is_refused(store: Path, log: Path) -> None:
    """The shared memory file holds the count. A killed process leaves it behind."""
    held, last = log.read_bytes(), last_transaction(log)
    for left in (held[:last], held[:-1], held[:HEADER], b"", None):
        if left is None:
            log.unlink()
        else:
            log.write_bytes(left)
        with pytest.raises(RepositoryCorrupt, match="frames were committed, of which"):
            committed(f"sqlite:{store}")
    log.write_bytes(held)
    assert committed(f"sqlite:{store}") == messages()


@pytest.mark.parametrize("count", [1, 2])
def test_frames_that_a_kill_left_unfinished_are_ignored(store: Path, log: Path, count: int) -> None:
    """One such frame may look like a damaged commit: a new header over data of an older frame.

    Failed commits, such as on a full disk, leave more than one.
    """
    held = log.read_bytes()
    last = held[-FRAME:]
    salt, data = last[8:16], last[24:]
    head = struct.pack(">II", 1, 9)
    state = sqlite_log._added(struct.unpack(">II", last[16:24]), head + data, "<II")
    unfinished = head + salt + struct.pack(">II", *state) + data[:-4] + b"once"
    log.write_bytes(held + count * unfinished)
    assert committed(f"sqlite:{store}") == messages()


def test_an_end_that_a_crash_of_the_machine_lost_is_ignored(store: Path, log: Path) -> None:
    """The shared memory may then be newer than the log, but its time is before the last boot."""
    log.write_bytes(log.read_bytes()[: last_transaction(log)])
    os.utime(shared(store), (BEFORE_BOOT, BEFORE_BOOT))
    assert committed(f"sqlite:{store}?sync=on") == messages(COMMITS - 1)


def test_copies_of_damaged_logs_are_not_overwritten(killed: Path, tmp_path: Path) -> None:
    kept: dict[Path, bytes] = {}
    for name in ("", ".2", ".3"):
        store = tmp_path / "store.db"
        for end in ("", "-wal", "-shm"):
            store.with_name(f"store.db{end}").write_bytes(
                killed.with_name(f"store.db{end}").read_bytes()
            )
        log = store.with_name("store.db-wal")
        flip(log, last_transaction(log) + 500 + len(kept))
        kept[log.with_name(f"{log.name}{name}{LEFT_OUT}")] = log.read_bytes()
        assert committed(f"sqlite:{store}?accept_loss=on") == messages(COMMITS - 1)
    assert {path: path.read_bytes() for path in tmp_path.glob(f"*{LEFT_OUT}")} == kept


def test_the_log_of_a_linked_database_is_found_beside_its_target(
    store: Path, log: Path, tmp_path: Path
) -> None:
    flip(log, last_transaction(log) + 500)
    link = tmp_path / "link.db"
    link.symlink_to(store)
    with pytest.raises(RepositoryCorrupt, match="accept_loss=on"):
        morag.open(f"sqlite:{link}")


def database_with_blob(path: Path, size_bytes: int) -> sqlite3.Connection:
    """A database with one row, all of it in the log."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute("CREATE TABLE t (x BLOB)")
    db.execute("INSERT INTO t VALUES (randomblob(?))", (size_bytes,))
    return db


def test_a_long_log_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    db = database_with_blob(path, 5_000_000)
    copy = copied(path, tmp_path.with_name(f"{tmp_path.name}-copy"))
    db.close()
    tracemalloc.start()
    try:
        assert find_damage(copy) is None
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 500_000


def unchanged(path: Path) -> Path:
    return path


def through_a_link(path: Path) -> Path:
    link = path.parent.with_name("link")
    link.symlink_to(path.parent)
    return link / path.name


def through_its_parent(path: Path) -> Path:
    return path.parent / ".." / path.parent.name / path.name


@pytest.mark.parametrize("spelling", [unchanged, through_a_link, through_its_parent])
def test_other_connections_of_the_process_keep_their_locks(
    spelling: Callable[[Path], Path], tmp_path: Path
) -> None:
    """Without locks, another process would act as the only user and delete the log."""
    path = tmp_path / "store" / "store.db"
    with morag.open(f"sqlite:{path}") as repo:
        repo.commit("main", [put("a")], "a")
    connection = sqlite3.connect(path)
    connection.execute("SELECT * FROM refs2").fetchall()
    assert is_locked(path)
    for name in (spelling(path), path):
        with morag.open(f"sqlite:{name}"):
            assert is_locked(path)
        assert is_locked(path)
    connection.close()
    assert not shared(path).exists()


def is_locked(store: Path) -> bool:
    """Whether another process finds the store locked."""
    command = [sys.executable, "-c", HAS_A_LOCK, str(shared(store))]
    return subprocess.run(command, capture_output=True, check=True).stdout == b"True\n"


def test_file_handles_do_not_accumulate(killed: Path, tmp_path: Path) -> None:
    for n in range(3):
        assert committed(f"sqlite:{copied(killed, tmp_path / f'{n}')}") == messages()
        assert len([path for path in opened_files() if path.startswith(str(tmp_path))]) <= 1


def opened_files() -> Iterator[str]:
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # The handle that lists the directory.
            yield str(handle.readlink())


def test_a_database_that_is_opened_during_the_examination_is_not_refused(
    store: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(log, last_transaction(log) + 500)
    assert find_damage(store) is not None
    find, others = sqlite_log._find_damage, list[sqlite3.Connection]()

    def find_and_open(database: Path) -> object:
        damage = find(database)
        others.append(sqlite3.connect(database))
        others[-1].execute("SELECT * FROM refs2").fetchall()
        return damage

    monkeypatch.setattr(sqlite_log, "_find_damage", find_and_open)
    assert find_damage(store) is None
    for other in others:
        other.close()


def test_a_database_that_is_already_open_is_not_examined(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'store.db'}"
    with morag.open(url) as repo:
        repo.commit("main", [put("a")], "a")
        log = tmp_path / "store.db-wal"
        held = log.read_bytes()
        flip(log, HEADER + FRAME + 700)
        with morag.open(url) as other:
            assert other.references.get("main") == repo.references.get("main")
        log.write_bytes(held)


def test_damaged_pages_are_reported_by_every_way_to_read_and_write(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with morag.open(f"sqlite:{path}") as repo:
        head = repo.commit("main", [put("a")], "a").hash
    backend = SQLiteBackend(path)
    held = bytearray(path.read_bytes())
    for page in range(4096, len(held), 4096):
        held[page : page + 100] = b"\x77" * 100
    path.write_bytes(held)
    id = ObjId(bytes.fromhex(head))
    for work in (
        lambda: backend.read_refs("", ["refs/heads/main"]),
        lambda: backend.read_rows("", [id]),
        lambda: list(backend.scan_rows("")),
        lambda: backend.read_log("", None, 10),
        lambda: backend.delete_rows("", [id]),
        lambda: backend.erase(""),
    ):
        with pytest.raises(RepositoryCorrupt, match=r"is damaged \(.*backup") as error:
            work()
        assert isinstance(error.value.__cause__, sqlite3.DatabaseError)
    backend.close()


@pytest.mark.parametrize("column", ["log_value", "prev_ptr", "log_key"])
@pytest.mark.parametrize("letter", [b"x", b"\xff"])
def test_a_column_whose_name_is_damaged_is_reported(
    column: str, letter: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    with morag.open(f"sqlite:{path}") as repo:
        repo.commit("main", [put("a")], "a")
    name = column.encode()
    path.write_bytes(path.read_bytes().replace(name, name[:-1] + letter))
    with pytest.raises(RepositoryCorrupt, match=r"is damaged \(.*backup"):
        morag.open(f"sqlite:{path}")


def test_text_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with morag.open(f"sqlite:{path}") as repo:
        repo.commit("main", [put("a")], "a")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE objs2 SET obj_type = CAST(x'ff41' AS TEXT)")
    db.close()
    with pytest.raises(RepositoryCorrupt, match="Could not decode"):
        committed(f"sqlite:{path}")


@pytest.mark.parametrize("left", [b"", None], ids=["empty", "missing"])
def test_a_log_without_its_database_is_not_deleted(
    store: Path, log: Path, left: bytes | None
) -> None:
    store.unlink()
    if left is not None:
        store.write_bytes(left)
    held = log.read_bytes()
    with pytest.raises(RepositoryCorrupt, match=r"missing or empty, but 'store.db-wal' is left"):
        morag.open(f"sqlite:{store}")
    assert log.read_bytes() == held
    log.unlink()
    with pytest.raises(RepositoryCorrupt, match=r"missing or empty, but 'store.db-shm' is left"):
        morag.open(f"sqlite:{store}")
    shared(store).unlink()
    assert committed(f"sqlite:{store}") == []


@pytest.mark.parametrize("size", [0, 1, 16, 31, 32, 33])
@pytest.mark.parametrize("zeros", [False, True], ids=["cut off", "zeros"])
def test_a_log_without_its_beginning_is_refused(log: Path, size: int, zeros: bool) -> None:
    held = log.read_bytes()
    log.write_bytes(held[:size] + bytes(len(held) - size if zeros else 0))
    store = log.with_name(log.name.removesuffix("-wal"))
    with pytest.raises(RepositoryCorrupt, match="accept_loss=on"):
        morag.open(f"sqlite:{store}")


def test_a_log_that_is_truncated_while_open_is_reported(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with morag.open(f"sqlite:{store}", Settings(cache_bytes=0)) as repo:
        repo.commit("main", [put("key")], "commit")
        os.truncate(store.with_name(f"{store.name}-wal"), 100)
        with pytest.raises(MoragError, match=r"(cannot read|damaged) \(.*\)\. (Check|Stop)"):
            list(repo.contents.entries("main", with_content=True))


@pytest.fixture
def partly_in_log(tmp_path: Path) -> Path:
    """The store of a killed process: some pages are in the database, some only in the log."""
    live = tmp_path / "live" / "store.db"
    with morag.open(f"sqlite:{live}") as repo:
        repo.commit("main", [put(f"table-{n}") for n in range(500)], "many")
        with sqlite3.connect(live) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
        repo.commit("main", [put(f"later-{n}") for n in range(50)], "later")
        return copied(live, tmp_path / "killed")


@pytest.mark.parametrize("pages", [8, 40])  # The last pages may be in the log as well.
def test_a_truncated_database_with_a_whole_log_is_refused(partly_in_log: Path, pages: int) -> None:
    """SQLite would read the missing pages as zeros, and write zeros at its next checkpoint."""
    healthy = copied(partly_in_log, partly_in_log.parent.with_name("healthy"))
    assert committed(f"sqlite:{healthy}") == ["many", "later"]
    size = partly_in_log.stat().st_size
    held = partly_in_log.with_name(f"{partly_in_log.name}-wal").read_bytes()
    os.truncate(partly_in_log, size - pages * 4096)
    for url in (f"sqlite:{partly_in_log}", f"sqlite:{partly_in_log}?accept_loss=on"):
        with pytest.raises(RepositoryCorrupt, match=r"is cut off: \d+ of its pages are missing"):
            morag.open(url)
    assert partly_in_log.stat().st_size == size - pages * 4096
    assert partly_in_log.with_name(f"{partly_in_log.name}-wal").read_bytes() == held


def test_missing_pages_that_are_not_used_are_accepted(tmp_path: Path) -> None:
    """SQLite need not write a page that is added and freed within one transaction."""
    database = tmp_path / "free.db"
    writer = database_with_blob(database, 400_000)
    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    writer.execute("DELETE FROM t")
    killed = copied(database, tmp_path / "killed")
    (free,) = writer.execute("PRAGMA freelist_count").fetchone()
    writer.close()
    os.truncate(killed, killed.stat().st_size - (free // 2) * 4096)
    assert find_damage(killed) is None

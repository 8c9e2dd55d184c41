"""RocksDB with damaged files: all that was acknowledged is there, or the store is not opened."""

from __future__ import annotations

import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING

import pytest

import morag
from morag.backend import rocksdb_secondary
from morag.backend.base import ObjId
from morag.backend.left_out import LEFT_OUT
from morag.backend.rocksdb import RocksDBBackend
from morag.backend.rocksdb_damage import Findings, examine, look
from morag.backend.rocksdb_log import BATCH, BLOCK, HEADER, LogReader
from morag.backend.rocksdb_synced import NAME as NOTE
from morag.errors import RepositoryCorrupt, StoreLocked, StoreUrlInvalid
from tests.safety.killed import COMMITS, committed, copied, flip, make, messages
from tests.safety.sound import ROOT, child_environment, put

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLIPS = 12


@pytest.fixture(scope="module", params=["on", "off"], ids=["sync", "no sync"])
def sync(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def killed(sync: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("killed") / "store"
    make(f"rocksdb:{store}?sync={sync}")
    return store


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("closed") / "store"
    with morag.open(f"rocksdb:{store}") as repo:
        for n, message in enumerate(messages()):
            repo.commit("main", [put(f"key-{n}")], message)
    return store


@pytest.fixture
def store(killed: Path, tmp_path: Path) -> Path:
    return copied(killed, tmp_path / "copy")


@pytest.fixture
def log(store: Path) -> Path:
    (log,) = (path for path in store.glob("*.log") if path.stat().st_size)
    return log


def batches(log: Path) -> list[int]:
    """Where they begin."""
    return [offset for offset, _ in LogReader(log.read_bytes(), verify=True).entries(0)]


def places(log: Path) -> list[int]:
    """Of the log: every byte of a few headers, and some of what is between."""
    found, random = batches(log), Random(7)
    headers = [at + n for at in (found[0], found[2], found[-1]) for n in range(HEADER.size)]
    return headers + random.sample(range(log.stat().st_size), FLIPS)


class TestLog:
    def test_a_log_that_is_not_damaged_opens(self, store: Path, sync: str) -> None:
        assert committed(f"rocksdb:{store}?sync={sync}") == messages()

    def test_any_flipped_bit_is_refused_and_nothing_is_lost_by_the_try(
        self, store: Path, log: Path, sync: str
    ) -> None:
        """Also by one who tries with other options, and also in the last commit."""
        held, random = log.read_bytes(), Random(8)
        for offset in places(log):
            flip(log, offset, random.randrange(8))
            with pytest.raises(RepositoryCorrupt, match="accept_loss=on") as error:
                committed(f"rocksdb:{store}?sync={sync}")
            assert f"'{log.name}' is damaged at byte" in str(error.value)
            assert str(store) in str(error.value)
            log.write_bytes(held)
        assert committed(f"rocksdb:{store}?sync={sync}") == messages()

    def test_any_flipped_bit_of_a_header_is_refused(
        self, store: Path, log: Path, sync: str
    ) -> None:
        found = batches(log)
        for offset in (found[0], found[2], found[-1]):
            self.refuses_every_bit_of_header(log, offset, f"rocksdb:{store}?sync={sync}")
        assert committed(f"rocksdb:{store}?sync={sync}") == messages()

    @pytest.mark.parametrize("is_last", [False, True], ids=["followed", "last"])
    def test_any_flipped_bit_of_a_header_within_a_large_batch_is_refused(
        self, tmp_path: Path, sync: str, is_last: bool
    ) -> None:
        url = f"rocksdb:{tmp_path / 'live' / 'store'}?sync={sync}"
        with morag.open(url) as repo:
            repo.commit("main", [put("a")], 20_000 * "large ")
            if not is_last:
                repo.commit("main", [put("b")], "small")
            store = copied(tmp_path / "live" / "store", tmp_path / "killed")
        (log,) = (path for path in store.glob("*.log") if path.stat().st_size)
        begin, end = [*batches(log), log.stat().st_size][-2 if is_last else -3 :][:2]
        parts = [at for at in range(0, end, BLOCK) if at > begin]
        for offset in (begin, parts[0], parts[-1]):
            self.refuses_every_bit_of_header(log, offset, f"rocksdb:{store}?sync={sync}")

    def refuses_every_bit_of_header(self, log: Path, offset: int, url: str) -> None:
        held = log.read_bytes()
        for bit in range(8 * HEADER.size):
            flip(log, offset + bit // 8, bit % 8)
            for read_only in (False, True):
                with pytest.raises(RepositoryCorrupt, match=rf"{log.name}.*accept_loss=on"):
                    morag.open(url, read_only=read_only)
            log.write_bytes(held)

    def test_readers_refuse_it_too(self, store: Path, log: Path) -> None:
        held = log.read_bytes()
        for offset in places(log)[::3]:
            flip(log, offset)
            with pytest.raises(RepositoryCorrupt, match=rf"{log.name}.*accept_loss=on"):
                morag.open(f"rocksdb:{store}", read_only=True)
            log.write_bytes(held)

    def test_a_flipped_bit_shows_without_a_note_of_what_was_synced(
        self, store: Path, log: Path
    ) -> None:
        held = log.read_bytes()
        for offset in sorted({*range(0, len(held), 13), *places(log)}):
            changed = bytearray(held)
            changed[offset] ^= 1 << offset % 8
            log.write_bytes(changed)
            assert examine(store, synced=0).damage is not None, offset

    def test_zeros_between_commits_are_refused(self, store: Path, log: Path) -> None:
        """RocksDB itself would go on after them, in each of its modes."""
        found, held = batches(log), bytearray(log.read_bytes())
        held[found[3] : found[4]] = bytes(found[4] - found[3])
        log.write_bytes(held)
        with pytest.raises(RepositoryCorrupt, match="zeros instead of a record"):
            committed(f"rocksdb:{store}")

    def test_what_is_left_is_opened_on_request_and_the_rest_is_kept(
        self, store: Path, log: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        found, held = batches(log), log.read_bytes()
        for offset in (found[-1] + HEADER.size + BATCH.size, found[-2], found[-3] + 4):
            log.write_bytes(held)
            damaged = copied(store, store.parent.with_name("damaged"))
            flip(damaged / log.name, offset)
            caplog.clear()
            left = committed(f"rocksdb:{damaged}?accept_loss=on")
            assert left == messages(len(left))
            assert COMMITS - 3 <= len(left) < COMMITS
            (warning,) = caplog.records
            assert warning.levelname == "WARNING"
            assert f"'{log.name}' is damaged at byte" in warning.message
            aside = damaged / f"{log.name}{LEFT_OUT}"
            assert aside.name in warning.message
            flip(aside, offset)
            assert aside.read_bytes() == held
            caplog.clear()
            assert committed(f"rocksdb:{damaged}") == left
            assert not caplog.records

    def test_copies_of_what_was_left_out_are_not_overwritten(self, store: Path, log: Path) -> None:
        held = log.read_bytes()
        kept: dict[Path, bytes] = {}
        for name in ("", ".2", ".3"):
            damaged = copied(store, store.parent.with_name("again"))
            for path, left in kept.items():
                path.write_bytes(left)
            flip(damaged / log.name, len(held) - 30 - len(kept))
            aside = damaged / f"{log.name}{name}{LEFT_OUT}"
            kept[aside] = (damaged / log.name).read_bytes()
            assert committed(f"rocksdb:{damaged}?accept_loss=on") == messages(COMMITS - 1)
            assert {path: path.read_bytes() for path in damaged.glob(f"*{LEFT_OUT}")} == kept

    def test_a_live_writer_is_not_judged(self, tmp_path: Path) -> None:
        url = f"rocksdb:{tmp_path / 'store'}"
        with morag.open(url) as repo:
            repo.commit("main", [put("a")], "a")
            (log,) = (tmp_path / "store").glob("*.log")
            with log.open("ab") as end:
                end.write(b"half")
            command = [sys.executable, "-c", f"import morag; morag.open({url!r})"]
            refused = subprocess.run(
                command, capture_output=True, cwd=ROOT, env=child_environment(), text=True
            )
            assert StoreLocked.__name__ in refused.stderr
            with pytest.raises(StoreLocked, match="in this process"):
                morag.open(url)
            assert log.read_bytes().endswith(b"half")
            with morag.open(url, read_only=True) as reader:
                assert reader.references.get("main") == repo.references.get("main")

    def test_a_log_that_the_writer_deletes_meanwhile_does_not_disturb_readers(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """RocksDB stops reading at a log that it has listed and cannot find."""
        listed_and_gone = tmp_path / "store" / "000001.log"

        def look_and_be_late(directory: Path, synced: int) -> Findings:
            if tries:
                listed_and_gone.unlink(missing_ok=True)
            tries.append(synced)
            return look(directory, synced)

        tries: list[int] = []
        with morag.open(f"rocksdb:{tmp_path / 'store'}") as repo:
            repo.commit("main", [put("a")], "a")
            listed_and_gone.symlink_to("nothing")
            monkeypatch.setattr(rocksdb_secondary, "look", look_and_be_late)
            with morag.open(f"rocksdb:{tmp_path / 'store'}", read_only=True) as reader:
                assert reader.references.get("main") == repo.references.get("main")


class TestEnd:
    """What a crash of the machine leaves of a log."""

    def endings(self, log: Path) -> Iterator[tuple[int, bytes]]:
        held, last = log.read_bytes(), batches(log)[-1]
        for end in (last, last + 3, (last + len(held)) // 2, len(held) - 20):
            yield end, held[:end]
            yield end, held[:end] + bytes(len(held) - end)
            yield end, held[:end] + bytes(100_000)

    def test_an_unfinished_write_that_was_not_synced_is_left_out(
        self, store: Path, log: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (store / NOTE).unlink()
        for end, held in self.endings(log):
            copy = copied(store, store.parent.with_name("crashed"))
            (copy / log.name).write_bytes(held)
            assert committed(f"rocksdb:{copy}?sync=off") == messages(COMMITS - 1), end
        assert {record.msg.endswith("is unfinished and left out") for record in caplog.records} == {
            True
        }

    @pytest.mark.parametrize("sync", ["on"], indirect=True)
    def test_what_was_synced_must_be_there(self, store: Path, log: Path) -> None:
        for _, held in self.endings(log):
            log.write_bytes(held)
            with pytest.raises(RepositoryCorrupt, match="which were synced"):
                committed(f"rocksdb:{store}")

    def test_an_unfinished_end_does_not_hide_damage_before_it(self, store: Path, log: Path) -> None:
        (store / NOTE).unlink()
        found, held = batches(log), log.read_bytes()
        log.write_bytes(held[: found[-1] + 20])
        flip(log, found[2] + 30)
        with pytest.raises(RepositoryCorrupt, match=f"byte {found[2]}"):
            committed(f"rocksdb:{store}")

    @pytest.mark.parametrize("sync", ["on"], indirect=True)
    def test_a_log_that_is_gone_is_missed(self, store: Path, log: Path) -> None:
        log.unlink()
        with pytest.raises(RepositoryCorrupt, match="missing from its files"):
            committed(f"rocksdb:{store}")
        assert committed(f"rocksdb:{store}?accept_loss=on") == []
        assert committed(f"rocksdb:{store}") == []


class TestSeveralLogs:
    @pytest.fixture
    def logs(self, store: Path, log: Path) -> tuple[Path, Path]:
        """The log as if RocksDB had gone on in a second one. A record does not tell its place."""
        (store / NOTE).unlink()
        held, half = log.read_bytes(), batches(log)[4]
        second = log.with_name(f"{int(log.stem) + 100:06}.log")
        second.write_bytes(held[half:])
        log.write_bytes(held[:half])
        return log, second

    def test_they_are_one(self, store: Path, logs: tuple[Path, Path]) -> None:
        assert committed(f"rocksdb:{store}") == messages()

    def test_each_must_be_there(self, store: Path, logs: tuple[Path, Path]) -> None:
        logs[0].unlink()
        with pytest.raises(RepositoryCorrupt, match=f"'{logs[1].name}' is damaged at byte 0"):
            committed(f"rocksdb:{store}")

    def test_the_first_must_be_whole(self, store: Path, logs: tuple[Path, Path]) -> None:
        found, held = batches(logs[0]), logs[0].read_bytes()
        for end in (found[-1], found[-1] + 9):
            logs[0].write_bytes(held[:end])
            with pytest.raises(RepositoryCorrupt, match=r"is damaged at byte"):
                committed(f"rocksdb:{store}")
        left = committed(f"rocksdb:{store}?accept_loss=on")
        assert left == messages(len(left))
        assert sorted(path.name for path in store.glob(f"*{LEFT_OUT}")) == [
            f"{log.name}{LEFT_OUT}" for log in logs
        ]


class TestTables:
    def test_a_flipped_bit_is_reported_or_does_no_harm(self, closed: Path, tmp_path: Path) -> None:
        random, reported = Random(9), 0
        for table in sorted(closed.glob("*.sst")):
            for offset in random.sample(range(table.stat().st_size), FLIPS):
                copy = copied(closed, tmp_path / "copy")
                flip(copy / table.name, offset)
                try:
                    assert committed(f"rocksdb:{copy}") == messages()
                except RepositoryCorrupt as error:
                    assert str(copy) in str(error)
                    assert "backup" in str(error)
                    reported += 1
        assert reported > FLIPS

    def test_every_way_to_read_tells_of_it(self, tmp_path: Path) -> None:
        with morag.open(f"rocksdb:{tmp_path / 'store'}") as repo:
            head = repo.commit("main", [put("a")], "a").hash
        for table in (tmp_path / "store").glob("*.sst"):
            flip(table, 30)
        backend = RocksDBBackend(tmp_path / "store")
        id, main = ObjId(bytes.fromhex(head)), "refs/heads/main"
        for work in (
            lambda: backend.read_refs("", [main]),
            lambda: backend.read_rows("", [id]),
            lambda: backend.read_rows("", [id] * 20),
            lambda: list(backend.scan_rows("")),
            lambda: backend.read_log("", None, 10),
            lambda: backend.erase(""),
        ):
            with pytest.raises(RepositoryCorrupt, match="Corruption: block checksum"):
                work()
        backend.close()

    @pytest.mark.parametrize("pattern", ["MANIFEST-*", "CURRENT", "OPTIONS-*", NOTE])
    def test_files_about_files_are_whole_or_not_needed(
        self, pattern: str, closed: Path, tmp_path: Path
    ) -> None:
        (path,) = sorted(closed.glob(pattern))[-1:]
        held, random = path.read_bytes(), Random(10)
        offsets = random.sample(range(len(held)), min(FLIPS, len(held)))
        damaged = [held[:at] + bytes([held[at] ^ 4]) + held[at + 1 :] for at in offsets]
        for content in (*damaged, b"", None, *(held[:at] for at in offsets[:9])):
            copy = copied(closed, tmp_path / "copy")
            if content is None:
                (copy / path.name).unlink()
            else:
                (copy / path.name).write_bytes(content)
            try:
                assert committed(f"rocksdb:{copy}") == messages()
            except (RepositoryCorrupt, StoreUrlInvalid) as error:
                assert "backup" in str(error)

    def test_a_table_that_is_gone_is_missed(self, closed: Path, tmp_path: Path) -> None:
        for table in sorted(closed.glob("*.sst")):
            copy = copied(closed, tmp_path / "copy")
            (copy / table.name).unlink()
            with pytest.raises(RepositoryCorrupt, match=table.name):
                committed(f"rocksdb:{copy}")

    def test_a_store_of_which_only_the_note_is_left_is_not_begun_anew(
        self, closed: Path, tmp_path: Path
    ) -> None:
        copy = copied(closed, tmp_path / "copy")
        for path in copy.iterdir():
            if path.name != NOTE:
                path.unlink()
        with pytest.raises(StoreUrlInvalid, match="holds other files"):
            committed(f"rocksdb:{copy}")


def test_a_store_that_another_program_wrote_to_since_needs_no_note(
    closed: Path, tmp_path: Path
) -> None:
    """Nessie knows nothing of the note. What it writes has higher numbers."""
    copy = copied(closed, tmp_path / "copy")
    note = (copy / NOTE).read_bytes()
    with morag.open(f"rocksdb:{copy}") as repo:
        repo.commit("main", [put("later")], "later")
    (copy / NOTE).write_bytes(note)
    assert committed(f"rocksdb:{copy}") == [*messages(), "later"]

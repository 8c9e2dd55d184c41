"""RocksDB with damaged files: all acknowledged commits are found, or opening is refused."""

from __future__ import annotations

import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING

import pytest

import morag
from morag.backend.base import ObjId
from morag.backend.rocksdb import secondary as rocksdb_secondary
from morag.backend.rocksdb.backend import RocksDBBackend
from morag.backend.rocksdb.log_damage import Findings, examine, look
from morag.backend.rocksdb.synced_note import NAME as NOTE
from morag.backend.rocksdb.write_ahead_log import BATCH, BLOCK, HEADER, LogReader
from morag.backend.store_files import LEFT_OUT
from morag.errors import RepositoryCorrupt, StoreLocked, StoreUrlInvalid
from tests.safety.history_checks import ROOT, child_environment, put
from tests.safety.killed_stores import COMMITS, committed, copied, flip, messages
from tests.sampling import seeds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KILLED = "rocksdb", "store"
FLIPS = 12


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("closed") / "store"
    with morag.open(f"rocksdb:{store}") as repo:
        for n, message in enumerate(messages()):
            repo.commit("main", [put(f"key-{n}")], message)
    return store


@pytest.fixture
def log(store: Path) -> Path:
    (log,) = (path for path in store.glob("*.log") if path.stat().st_size)
    return log


def batches(log: Path) -> list[int]:
    """The offsets at which the batches of the log begin."""
    return [offset for offset, _ in LogReader(log.read_bytes(), verify=True).entries(0)]


def sampled_offsets(log: Path) -> list[int]:
    """Every byte of a few headers of the log, and random bytes between them."""
    found, random = batches(log), Random(7)
    headers = [at + n for at in (found[0], found[2], found[-1]) for n in range(HEADER.size)]
    return headers + random.sample(range(log.stat().st_size), FLIPS)


class TestLog:
    def test_an_undamaged_log_opens(self, store: Path, sync: str) -> None:
        assert committed(f"rocksdb:{store}?sync={sync}") == messages()

    def test_any_flipped_bit_is_refused_and_the_attempt_loses_nothing(
        self, store: Path, log: Path, sync: str
    ) -> None:
        """This holds for both values of `sync`, and also for the last commit."""
        data, random = log.read_bytes(), Random(8)
        for offset in sampled_offsets(log):
            flip(log, offset, random.randrange(8))
            with pytest.raises(RepositoryCorrupt, match="accept_loss=on") as error:
                committed(f"rocksdb:{store}?sync={sync}")
            assert f"'{log.name}' is damaged at byte" in str(error.value)
            assert str(store) in str(error.value)
            log.write_bytes(data)
        assert committed(f"rocksdb:{store}?sync={sync}") == messages()

    def test_any_flipped_bit_of_a_header_is_refused(
        self, store: Path, log: Path, sync: str
    ) -> None:
        found = batches(log)
        for offset in (found[0], found[2], found[-1]):
            self.refuses_flipped_bits_of_header(log, offset, f"rocksdb:{store}?sync={sync}")
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
            self.refuses_flipped_bits_of_header(log, offset, f"rocksdb:{store}?sync={sync}")

    def refuses_flipped_bits_of_header(self, log: Path, offset: int, url: str) -> None:
        data = log.read_bytes()
        for bit in seeds("bits of log headers"):
            flip(log, offset + bit // 8, bit % 8)
            for read_only in (False, True):
                with pytest.raises(RepositoryCorrupt, match=rf"{log.name}.*accept_loss=on"):
                    morag.open(url, read_only=read_only)
            log.write_bytes(data)

    def test_readers_refuse_a_flipped_bit_too(self, store: Path, log: Path) -> None:
        data = log.read_bytes()
        for offset in sampled_offsets(log)[::3]:
            flip(log, offset)
            with pytest.raises(RepositoryCorrupt, match=rf"{log.name}.*accept_loss=on"):
                morag.open(f"rocksdb:{store}", read_only=True)
            log.write_bytes(data)

    def test_a_flipped_bit_is_found_without_the_note_of_what_was_synced(
        self, store: Path, log: Path
    ) -> None:
        data = log.read_bytes()
        for offset in sorted({*range(0, len(data), 13), *sampled_offsets(log)}):
            changed = bytearray(data)
            changed[offset] ^= 1 << offset % 8
            log.write_bytes(changed)
            assert examine(store, synced=0).damage is not None, offset

    def test_zeros_between_commits_are_refused(self, store: Path, log: Path) -> None:
        """RocksDB itself would skip them, in each of its recovery modes."""
        found, data = batches(log), bytearray(log.read_bytes())
        data[found[3] : found[4]] = bytes(found[4] - found[3])
        log.write_bytes(data)
        with pytest.raises(RepositoryCorrupt, match="zeros instead of a record"):
            committed(f"rocksdb:{store}")

    def test_accept_loss_opens_the_intact_part_and_keeps_a_copy_of_the_log(
        self, store: Path, log: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        found, data = batches(log), log.read_bytes()
        for offset in (found[-1] + HEADER.size + BATCH.size, found[-2], found[-3] + 4):
            log.write_bytes(data)
            damaged = copied(store, store.parent.with_name("damaged"))
            flip(damaged / log.name, offset)
            caplog.clear()
            left = committed(f"rocksdb:{damaged}?accept_loss=on")
            assert left == messages(len(left))
            assert COMMITS - 3 <= len(left) < COMMITS
            (warning,) = caplog.records
            assert warning.levelname == "WARNING"
            assert f"'{log.name}' is damaged at byte" in warning.message
            copy_of_log = damaged / f"{log.name}{LEFT_OUT}"
            assert copy_of_log.name in warning.message
            flip(copy_of_log, offset)
            assert copy_of_log.read_bytes() == data
            caplog.clear()
            assert committed(f"rocksdb:{damaged}") == left
            assert not caplog.records

    def test_copies_of_damaged_logs_are_not_overwritten(self, store: Path, log: Path) -> None:
        data = log.read_bytes()
        kept: dict[Path, bytes] = {}
        for name in ("", ".2", ".3"):
            damaged = copied(store, store.parent.with_name("again"))
            for path, left in kept.items():
                path.write_bytes(left)
            flip(damaged / log.name, len(data) - 30 - len(kept))
            copy_of_log = damaged / f"{log.name}{name}{LEFT_OUT}"
            kept[copy_of_log] = (damaged / log.name).read_bytes()
            assert committed(f"rocksdb:{damaged}?accept_loss=on") == messages(COMMITS - 1)
            assert {path: path.read_bytes() for path in damaged.glob(f"*{LEFT_OUT}")} == kept

    def test_the_log_of_a_live_writer_is_not_examined(self, tmp_path: Path) -> None:
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

    def test_readers_open_a_store_while_its_writer_deletes_a_log(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """RocksDB fails at a log that it has listed and cannot find."""
        listed_and_gone = tmp_path / "store" / "000001.log"

        def look_after_deletion(directory: Path, synced: int) -> Findings:
            if attempts:
                listed_and_gone.unlink(missing_ok=True)
            attempts.append(synced)
            return look(directory, synced)

        attempts: list[int] = []
        with morag.open(f"rocksdb:{tmp_path / 'store'}") as repo:
            repo.commit("main", [put("a")], "a")
            listed_and_gone.symlink_to("nothing")
            monkeypatch.setattr(rocksdb_secondary, "look", look_after_deletion)
            with morag.open(f"rocksdb:{tmp_path / 'store'}", read_only=True) as reader:
                assert reader.references.get("main") == repo.references.get("main")


class TestUnfinishedEnd:
    """A log whose end a crash of the machine did not write."""

    def endings(self, log: Path) -> Iterator[tuple[int, bytes]]:
        data, last = log.read_bytes(), batches(log)[-1]
        for end in (last, last + 3, (last + len(data)) // 2, len(data) - 20):
            yield end, data[:end]
            yield end, data[:end] + bytes(len(data) - end)
            yield end, data[:end] + bytes(100_000)

    def test_an_unfinished_write_that_was_not_synced_is_ignored(
        self, store: Path, log: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (store / NOTE).unlink()
        for end, data in self.endings(log):
            copy = copied(store, store.parent.with_name("crashed"))
            (copy / log.name).write_bytes(data)
            assert committed(f"rocksdb:{copy}?sync=off") == messages(COMMITS - 1), end
        assert {record.msg.endswith("is unfinished and left out") for record in caplog.records} == {
            True
        }

    @pytest.mark.parametrize("sync", ["on"], indirect=True)
    def test_a_missing_end_that_was_synced_is_refused(self, store: Path, log: Path) -> None:
        for _, data in self.endings(log):
            log.write_bytes(data)
            with pytest.raises(RepositoryCorrupt, match="which were synced"):
                committed(f"rocksdb:{store}")

    def test_an_unfinished_end_does_not_hide_damage_before_it(self, store: Path, log: Path) -> None:
        (store / NOTE).unlink()
        found, data = batches(log), log.read_bytes()
        log.write_bytes(data[: found[-1] + 20])
        flip(log, found[2] + 30)
        with pytest.raises(RepositoryCorrupt, match=f"byte {found[2]}"):
            committed(f"rocksdb:{store}")

    @pytest.mark.parametrize("sync", ["on"], indirect=True)
    def test_a_missing_log_is_refused(self, store: Path, log: Path) -> None:
        log.unlink()
        with pytest.raises(RepositoryCorrupt, match="missing from its files"):
            committed(f"rocksdb:{store}")
        assert committed(f"rocksdb:{store}?accept_loss=on") == []
        assert committed(f"rocksdb:{store}") == []


class TestSeveralLogs:
    @pytest.fixture
    def logs(self, store: Path, log: Path) -> tuple[Path, Path]:
        """The log split in two, as when RocksDB starts a new one. Records hold no offset."""
        (store / NOTE).unlink()
        data, half = log.read_bytes(), batches(log)[4]
        second = log.with_name(f"{int(log.stem) + 100:06}.log")
        second.write_bytes(data[half:])
        log.write_bytes(data[:half])
        return log, second

    def test_several_logs_are_read_as_one(self, store: Path, logs: tuple[Path, Path]) -> None:
        assert committed(f"rocksdb:{store}") == messages()

    def test_a_missing_first_log_is_refused(self, store: Path, logs: tuple[Path, Path]) -> None:
        logs[0].unlink()
        with pytest.raises(RepositoryCorrupt, match=f"'{logs[1].name}' is damaged at byte 0"):
            committed(f"rocksdb:{store}")

    def test_a_truncated_first_log_is_refused(self, store: Path, logs: tuple[Path, Path]) -> None:
        found, data = batches(logs[0]), logs[0].read_bytes()
        for end in (found[-1], found[-1] + 9):
            logs[0].write_bytes(data[:end])
            with pytest.raises(RepositoryCorrupt, match=r"is damaged at byte"):
                committed(f"rocksdb:{store}")
        left = committed(f"rocksdb:{store}?accept_loss=on")
        assert left == messages(len(left))
        assert sorted(path.name for path in store.glob(f"*{LEFT_OUT}")) == [
            f"{log.name}{LEFT_OUT}" for log in logs
        ]


class TestTables:
    def test_a_flipped_bit_is_reported_or_harmless(self, closed: Path, tmp_path: Path) -> None:
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

    def test_every_way_to_read_reports_a_damaged_table(self, tmp_path: Path) -> None:
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
    def test_damaged_metadata_files_are_refused_or_not_needed(
        self, pattern: str, closed: Path, tmp_path: Path
    ) -> None:
        (path,) = sorted(closed.glob(pattern))[-1:]
        data, random = path.read_bytes(), Random(10)
        offsets = random.sample(range(len(data)), min(FLIPS, len(data)))
        damaged = [data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :] for at in offsets]
        for content in (*damaged, b"", None, *(data[:at] for at in offsets[:9])):
            copy = copied(closed, tmp_path / "copy")
            if content is None:
                (copy / path.name).unlink()
            else:
                (copy / path.name).write_bytes(content)
            try:
                assert committed(f"rocksdb:{copy}") == messages()
            except (RepositoryCorrupt, StoreUrlInvalid) as error:
                assert "backup" in str(error)

    def test_a_missing_table_is_refused(self, closed: Path, tmp_path: Path) -> None:
        for table in sorted(closed.glob("*.sst")):
            copy = copied(closed, tmp_path / "copy")
            (copy / table.name).unlink()
            with pytest.raises(RepositoryCorrupt, match=table.name):
                committed(f"rocksdb:{copy}")

    def test_a_store_with_only_the_note_left_is_not_created_again(
        self, closed: Path, tmp_path: Path
    ) -> None:
        copy = copied(closed, tmp_path / "copy")
        for path in copy.iterdir():
            if path.name != NOTE:
                path.unlink()
        with pytest.raises(StoreUrlInvalid, match="holds other files"):
            committed(f"rocksdb:{copy}")


def test_a_store_that_another_program_wrote_to_opens_with_an_old_note(
    closed: Path, tmp_path: Path
) -> None:
    """Nessie does not write the note. Its writes have higher sequence numbers."""
    copy = copied(closed, tmp_path / "copy")
    note = (copy / NOTE).read_bytes()
    with morag.open(f"rocksdb:{copy}") as repo:
        repo.commit("main", [put("later")], "later")
    (copy / NOTE).write_bytes(note)
    assert committed(f"rocksdb:{copy}") == [*messages(), "later"]

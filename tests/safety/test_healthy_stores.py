"""A store that is not damaged is never refused, and holds all acknowledged commits.

Its process may have been killed; the store may have been copied, read by other processes, and
changed by programs that do not write Morag's note of what was synced, in any order.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from random import Random
from threading import Thread
from time import sleep
from typing import IO, TYPE_CHECKING, Final

import pytest

import morag
from tests.safety import committer
from tests.safety.history_checks import ROOT, child_environment, put
from tests.safety.killed_stores import committed
from tests.safety.test_kill import run_and_kill
from tests.sampling import seeds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMES: Final = ["rocksdb", "sqlite"]
LARGE: Final = ("--bytes", "300000")
"""A few commits of this size fill a log of SQLite, a few dozen fill a memtable of RocksDB."""
OPEN_AND_CLOSE: Final = """
import sys, morag
while True:
    morag.open(sys.argv[1]).close()
"""


class Writer:
    """A process whose threads each make a number of large commits."""

    def __init__(self, url: str, name: str, commits: int) -> None:
        self._child = committer.start(url, name, *LARGE, "--commits", str(commits))
        self._done: list[str] = []
        assert self._out.readline() == b"ready\n"
        self._reading = Thread(target=self._read)
        self._reading.start()

    @property
    def is_running(self) -> bool:
        return self._child.poll() is None

    @property
    def done(self) -> set[str]:
        """The names of the commits that are acknowledged so far."""
        return set(self._done)

    def close(self) -> None:
        """Wait until the process has made all its commits."""
        assert self._child.wait(timeout=60) == 0
        self._reading.join()
        self._out.close()

    def _read(self) -> None:
        for line in self._out:
            verb, name, *_ = line.decode().split()
            if verb == "done":
                self._done.append(name)

    @property
    def _out(self) -> IO[bytes]:
        assert self._child.stdout is not None
        return self._child.stdout


class Life:
    """A store that lives through random events."""

    def __init__(self, scheme: str, directory: Path, seed: int) -> None:
        self._scheme, self._directory, self._random = scheme, directory, Random(seed)
        self._moves = self._runs = 0
        self.done: set[str] = set()
        directory.mkdir()

    @property
    def url(self) -> str:
        """The URL with a random `sync`: a kill of the process loses nothing with either value."""
        return f"{self._plain_url}?sync={self._random.choice(['on', 'off'])}"

    def run_event(self) -> None:
        """Run one random event; after half of them, check that all acknowledged commits exist."""
        events: list[Callable[[], None]] = [
            *(self._kill_under_load, self._kill_under_load, self._kill_during_open),
            *(self._copy, self._read_under_load, self._change_without_note),
        ]
        event = self._random.choice(events)
        event()
        if self._random.random() < 0.5:
            return  # The next event starts from the state that this one left.
        only_reads = bool(self.done) and self._random.random() < 0.3  # A reader creates no store.
        found = messages_in(self.url, read_only=only_reads)
        assert messages_of(self.done) <= found, event.__name__

    def _kill_under_load(self) -> None:
        self._runs += 1
        options = self._random.choice([(), LARGE, LARGE])
        seconds = self._random.uniform(0, 0.8)
        self.done |= set(run_and_kill(self.url, f"r{self._runs}", seconds, *options).done)

    def _kill_during_open(self) -> None:
        child = subprocess.Popen(
            [sys.executable, "-c", OPEN_AND_CLOSE, self.url],
            cwd=ROOT,
            env=child_environment(),
            stderr=subprocess.PIPE,
        )
        sleep(self._random.uniform(0.2, 0.8))
        child.kill()
        _, errors = child.communicate()
        # The kill before may have cut a large write short, which was not acknowledged then.
        assert all(line.endswith(b"is unfinished and left out") for line in errors.splitlines())

    def _copy(self) -> None:
        self._moves += 1
        to = self._directory.with_name(f"moved-{self._moves}")
        keeps_times = self._random.choice([True, False])
        copy = shutil.copy2 if keeps_times else shutil.copyfile
        shutil.copytree(self._directory, to, copy_function=copy)
        shutil.rmtree(self._directory)
        self._directory = to

    def _read_under_load(self) -> None:
        self._runs += 1
        with closing(Writer(self.url, f"r{self._runs}", commits=25)) as writer:
            while writer.is_running and self._random.random() < 0.9:
                self.done |= writer.done
                assert messages_of(self.done) <= messages_in(self.url, read_only=True)
        self.done |= writer.done

    def _change_without_note(self) -> None:
        """Commit and restore the old note of what was synced: Nessie and SQLite do not write it."""
        note = self._directory / "store" / "morag-synced"
        held = note.read_bytes() if note.exists() else None
        self._runs += 1
        self.done |= set(run_and_kill(self.url, f"r{self._runs}", 0.1).done)
        if held is not None:
            note.write_bytes(held)

    @property
    def _plain_url(self) -> str:
        return f"{self._scheme}:{self._directory / 'store'}"


def messages_of(names: set[str]) -> set[str]:
    return {committer.commit_message(name) for name in names}


def messages_in(url: str, *, read_only: bool) -> set[str]:
    with morag.open(url, read_only=read_only) as repo:
        return {entry.meta.message for entry in repo.history.log("main")}


@pytest.mark.parametrize("stores", [2, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_reader_beside_a_writer_sees_all_that_was_acknowledged(
    scheme: str, stores: int, tmp_path: Path
) -> None:
    """This also holds while the writer flushes a log and deletes it."""
    for number in range(stores):
        url = f"{scheme}:{tmp_path / f'store-{number}'}"
        with closing(Writer(url, "w", commits=25)) as writer:
            while writer.is_running:
                done = messages_of(writer.done)
                assert done <= messages_in(url, read_only=True)
        assert len(writer.done) >= 100


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_healthy_store_is_never_refused(scheme: str, tmp_path: Path) -> None:
    life = Life(scheme, tmp_path / "born", seed=3)
    for _ in range(8):
        life.run_event()


@pytest.mark.parametrize("way", ["backup", "vacuum"])
def test_a_backup_of_an_open_sqlite_store_opens(way: str, tmp_path: Path) -> None:
    """Both ways of docs/stores.md."""
    copy = tmp_path / "copy.db"
    with morag.open(f"sqlite:{tmp_path / 'store.db'}") as repo:
        repo.commit("main", [put("a")], "first")
        with closing(sqlite3.connect(tmp_path / "store.db")) as db:
            if way == "vacuum":
                db.execute("VACUUM INTO ?", (str(copy),))
            else:
                with closing(sqlite3.connect(copy)) as to:
                    db.backup(to)
        repo.commit("main", [put("b")], "second")
    assert committed(f"sqlite:{copy}") == ["first"]


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds("store life seeds"))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_healthy_store_is_never_refused_in_a_long_life(
    scheme: str, seed: int, tmp_path: Path
) -> None:
    life = Life(scheme, tmp_path / "born", seed)
    for _ in range(40):
        life.run_event()
    assert len(life.done) > 200, "too few commits to prove anything"

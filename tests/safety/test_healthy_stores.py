"""A store that is not damaged is never refused, and has all that was acknowledged.

It may have been killed, copied, read by others, changed by programs that know nothing of Morag's
notes, and all of that in turn.
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
from tests.safety.committer import commit_message
from tests.safety.killed import committed
from tests.safety.sound import ROOT, child_environment, put
from tests.safety.test_kill import run_and_kill

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMES: Final = ["rocksdb", "sqlite"]
LARGE: Final = ("--bytes", "300000")
"""So large that some dozens fill one of RocksDB's memtables, and some a log of SQLite."""
OPEN_AND_CLOSE: Final = """
import sys, morag
while True:
    morag.open(sys.argv[1]).close()
"""


class Writer:
    """A process whose threads make so many large commits each."""

    def __init__(self, url: str, name: str, commits: int) -> None:
        command = [sys.executable, "-m", "tests.safety.committer", url, name]
        self._child = subprocess.Popen(
            [*command, *LARGE, "--commits", str(commits)],
            cwd=ROOT,
            env=child_environment(),
            stdout=subprocess.PIPE,
        )
        self._done: list[str] = []
        assert self._out.readline() == b"ready\n"
        self._reading = Thread(target=self._read)
        self._reading.start()

    @property
    def is_at_work(self) -> bool:
        return self._child.poll() is None

    @property
    def done(self) -> set[str]:
        """What it has been told is committed, up to now."""
        return set(self._done)

    def close(self) -> None:
        """Let it finish."""
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
    """A store to which something happens again and again."""

    def __init__(self, scheme: str, directory: Path, seed: int) -> None:
        self._scheme, self._directory, self._random = scheme, directory, Random(seed)
        self._moves = self._runs = 0
        self.done: set[str] = set()
        directory.mkdir()

    @property
    def url(self) -> str:
        """With another `sync` each time: a kill loses nothing either way."""
        return f"{self._plain_url}?sync={self._random.choice(['on', 'off'])}"

    def goes_on(self) -> None:
        """One event, and a look at what is there after it."""
        events: list[Callable[[], None]] = [
            *(self._is_killed_under_load, self._is_killed_under_load, self._is_killed_as_it_opens),
            *(self._is_copied, self._is_read_under_load, self._is_changed_by_others),
        ]
        event = self._random.choice(events)
        event()
        if self._random.random() < 0.5:
            return  # The next event meets what this one left behind.
        only_reads = bool(self.done) and self._random.random() < 0.3  # It makes no store.
        there = messages_in(self.url, read_only=only_reads)
        assert messages_of(self.done) <= there, event.__name__

    def _is_killed_under_load(self) -> None:
        self._runs += 1
        options = self._random.choice([(), LARGE, LARGE])
        seconds = self._random.uniform(0, 0.8)
        self.done |= set(run_and_kill(self.url, f"r{self._runs}", seconds, *options).done)

    def _is_killed_as_it_opens(self) -> None:
        child = subprocess.Popen(
            [sys.executable, "-c", OPEN_AND_CLOSE, self.url],
            cwd=ROOT,
            env=child_environment(),
            stderr=subprocess.PIPE,
        )
        sleep(self._random.uniform(0.2, 0.8))
        child.kill()
        _, errors = child.communicate()
        assert errors == b""

    def _is_copied(self) -> None:
        self._moves += 1
        to = self._directory.with_name(f"moved-{self._moves}")
        keeps_times = self._random.choice([True, False])
        copy = shutil.copy2 if keeps_times else shutil.copyfile
        shutil.copytree(self._directory, to, copy_function=copy)
        shutil.rmtree(self._directory)
        self._directory = to

    def _is_read_under_load(self) -> None:
        self._runs += 1
        with closing(Writer(self.url, f"r{self._runs}", commits=25)) as writer:
            while writer.is_at_work and self._random.random() < 0.9:
                self.done |= writer.done
                assert messages_of(self.done) <= messages_in(self.url, read_only=True)
        self.done |= writer.done

    def _is_changed_by_others(self) -> None:
        """As Nessie or a user of SQLite does, who leaves the note of what was synced as it was."""
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
    return {commit_message(name) for name in names}


def messages_in(url: str, *, read_only: bool) -> set[str]:
    with morag.open(url, read_only=read_only) as repo:
        return {entry.meta.message for entry in repo.history.log("main")}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_reader_beside_a_writer_sees_all_that_was_acknowledged(
    scheme: str, tmp_path: Path
) -> None:
    """Also when the writer flushes a log and deletes it while the reader opens the store."""
    for number in range(8):
        url = f"{scheme}:{tmp_path / f'store-{number}'}"
        with closing(Writer(url, "w", commits=25)) as writer:
            while writer.is_at_work:
                done = messages_of(writer.done)
                assert done <= messages_in(url, read_only=True)
        assert len(writer.done) >= 100


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_healthy_store_is_never_refused(scheme: str, tmp_path: Path) -> None:
    life = Life(scheme, tmp_path / "born", seed=3)
    for _ in range(8):
        life.goes_on()


@pytest.mark.parametrize("way", ["backup", "vacuum"])
def test_a_backup_of_an_open_sqlite_store_is_a_store(way: str, tmp_path: Path) -> None:
    """As docs/stores.md describes it."""
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
@pytest.mark.parametrize("seed", range(100, 103))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_healthy_store_is_never_refused_in_a_long_life(
    scheme: str, seed: int, tmp_path: Path
) -> None:
    life = Life(scheme, tmp_path / "born", seed)
    for _ in range(40):
        life.goes_on()
    assert len(life.done) > 200, "too little was done to prove anything"

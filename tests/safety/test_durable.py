"""Durable means durable: the system calls show that the log is synced before the answer.

A killed process proves nothing here, since what it wrote stays with the kernel. So the child runs
under a tracer, and its acknowledgements are looked up among its writes and syncs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from shutil import which
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct

from tests.safety.committer import commit_message
from tests.safety.sound import ROOT, child_environment

if TYPE_CHECKING:
    from pathlib import Path

WRITES = ("write", "pwrite64", "writev", "pwritev", "pwritev2")
SYNCS = ("fsync", "fdatasync")
LOGS = {"rocksdb": re.compile(r"/\d+\.log$"), "sqlite": re.compile(r"-wal$")}

_CALL = re.compile(r"(\d+) +(\w+)\(\d+<(.*?)>(.*)")
_RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>.*= (-?\d+)")
_RETURNED = re.compile(r".*= (-?\d+)( \S+ \(.*\))?$")


class Call(Struct):
    """A system call: its first and last line in the trace, and what it was told."""

    name: str
    path: str
    text: str
    started: int
    finished: int | None = None
    failed: bool = False


@pytest.fixture(scope="module")
def strace() -> str:
    found = which("strace")
    if found is None:
        pytest.skip("the tracer `strace` is not installed")
    probe = subprocess.run([found, "-o", "/dev/null", "true"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"the tracer may not attach (ptrace permission): {probe.stderr.strip()}")
    return found


def trace(strace: str, url: str, path: Path, *options: str) -> list[Call]:
    """The writes and syncs of a committer, in the order in which they were started."""
    calls = ",".join((*WRITES, *SYNCS))
    tracing = [strace, "-f", "-y", "-s", "100000", "-e", f"trace={calls}", "-o", str(path)]
    child = [sys.executable, "-m", "tests.safety.committer", url, "c", *options]
    subprocess.run(
        [*tracing, *child],
        check=True,
        timeout=100,
        cwd=ROOT,
        env=child_environment(),
        stdout=subprocess.PIPE,  # A pipe, as for a real client.
    )
    return parsed(path.read_text(errors="replace").splitlines())


def parsed(lines: list[str]) -> list[Call]:
    calls: list[Call] = []
    running: dict[str, Call] = {}
    for at, line in enumerate(lines):
        if found := _CALL.match(line):
            thread, name, path, rest = found.groups()
            call = Call(name, path, rest, at)
            calls.append(call)
            if rest.endswith("<unfinished ...>"):
                running[thread] = call
            elif returned := _RETURNED.match(rest):
                call.finished, call.failed = at, returned[1].startswith("-")
        elif found := _RESUMED.match(line):
            thread, _, result = found.groups()
            if (resumed := running.pop(thread, None)) is not None:
                resumed.finished, resumed.failed = at, result.startswith("-")
    return calls


class Trace:
    """What the trace says about the log and about acknowledgements."""

    def __init__(self, calls: list[Call], log: re.Pattern[str]) -> None:
        of_log = [call for call in calls if log.search(call.path)]
        self.writes = [call for call in of_log if call.name in WRITES]
        self.syncs = [call for call in of_log if call.name in SYNCS and not call.failed]
        self.acks = {
            found[1]: call
            for call in calls
            if (found := re.match(r', "done (\S+) ', call.text)) and "pipe:" in call.path
        }

    def is_durable(self, name: str) -> bool:
        """Whether the log had the commit, and was synced after that, before the answer."""
        written = self._first_write(name)
        return self._is_synced(written, self.acks[name])

    def is_durable_to_the_last_write(self, name: str) -> bool:
        """The same for all that was written to the log before the answer. For single threads."""
        ack = self.acks[name]
        before = [call for call in self.writes if call.started < ack.started]
        return self._first_write(name) in before and self._is_synced(before[-1], ack)

    def _first_write(self, name: str) -> Call:
        said = re.compile(re.escape(commit_message(name).split()[0]))
        found = next((call for call in self.writes if said.search(call.text)), None)
        assert found is not None, f"no write to the log tells of {name}"
        return found

    def _is_synced(self, written: Call, ack: Call) -> bool:
        return any(
            written.finished is not None
            and sync.finished is not None
            and written.finished < sync.started
            and sync.finished < ack.started
            for sync in self.syncs
        )


@pytest.mark.parametrize("scheme", ["rocksdb", "sqlite"])
class TestDurable:
    def test_a_commit_is_synced_before_it_is_acknowledged(
        self, strace: str, scheme: str, tmp_path: Path
    ) -> None:
        url = f"{scheme}:{tmp_path / 'store'}"
        calls = trace(strace, url, tmp_path / "trace", "--threads", "1", "--commits", "12")
        seen = Trace(calls, LOGS[scheme])
        assert len(seen.acks) == 12
        assert [name for name in seen.acks if not seen.is_durable_to_the_last_write(name)] == []
        assert [name for name in seen.acks if not seen.is_durable(name)] == []

    def test_without_sync_nothing_is(self, strace: str, scheme: str, tmp_path: Path) -> None:
        """Who asked for it gets it; and the test above is able to fail."""
        url = f"{scheme}:{tmp_path / 'store'}?sync=off"
        calls = trace(strace, url, tmp_path / "trace", "--threads", "1", "--commits", "12")
        seen = Trace(calls, LOGS[scheme])
        assert len(seen.acks) == 12
        assert [name for name in seen.acks if seen.is_durable(name)] == []

    @pytest.mark.parametrize("branches", [(), ("--each",)], ids=["one branch", "a branch each"])
    def test_threads_share_a_sync_and_none_is_answered_before_it(
        self, strace: str, scheme: str, branches: tuple[str, ...], tmp_path: Path
    ) -> None:
        url = f"{scheme}:{tmp_path / 'store'}"
        options = ("--threads", "6", "--commits", "6", *branches)
        seen = Trace(trace(strace, url, tmp_path / "trace", *options), LOGS[scheme])
        assert len(seen.acks) == 36
        assert [name for name in seen.acks if not seen.is_durable(name)] == []
        if not branches:
            first = min(ack.started for ack in seen.acks.values())
            assert len([sync for sync in seen.syncs if sync.started > first]) < 36

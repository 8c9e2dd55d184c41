"""Durability: system calls show that the log is synced before a commit is acknowledged.

Killing the process would prove nothing: the kernel keeps what it wrote. So the child runs under
`strace`, and the test compares the order of its log writes, syncs and acknowledgements.
"""

from __future__ import annotations

import re
import subprocess
from shutil import which
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct

from tests.safety import committer
from tests.safety.history_checks import ROOT, child_environment

if TYPE_CHECKING:
    from pathlib import Path

WRITES = ("write", "pwrite64", "writev", "pwritev", "pwritev2")
SYNCS = ("fsync", "fdatasync")
LOGS = {"rocksdb": re.compile(r"/\d+\.log$"), "sqlite": re.compile(r"-wal$")}

_CALL = re.compile(r"(\d+) +(\w+)\(\d+<(.*?)>(.*)")
_RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>.*= (-?\d+)")
_RETURNED = re.compile(r".*= (-?\d+)( \S+ \(.*\))?$")


class Call(Struct):
    """A system call: its arguments, and the lines of the trace where it starts and ends."""

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
    """The writes and syncs of a committer, ordered by start."""
    calls = ",".join((*WRITES, *SYNCS))
    tracing = [strace, "-f", "-y", "-s", "100000", "-e", f"trace={calls}", "-o", str(path)]
    subprocess.run(
        [*tracing, *committer.command(url, "c", *options)],
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
    """The writes and syncs of the log, and the acknowledgements of commits by name."""

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
        """Whether the commit was written to the log and synced before it was acknowledged."""
        written = self._first_write(name)
        return self._is_synced(written, self.acks[name])

    def is_durable_to_the_last_write(self, name: str) -> bool:
        """Whether everything written to the log before the acknowledgement was synced.

        For single-threaded committers only: another thread may write after the last sync.
        """
        ack = self.acks[name]
        before = [call for call in self.writes if call.started < ack.started]
        return self._first_write(name) in before and self._is_synced(before[-1], ack)

    def _first_write(self, name: str) -> Call:
        part = re.compile(re.escape(committer.commit_message(name).split()[0]))
        found = next((call for call in self.writes if part.search(call.text)), None)
        assert found is not None, f"no write to the log holds {name}"
        return found

    def _is_synced(self, written: Call, ack: Call) -> bool:
        return any(
            written.finished is not None
            and sync.finished is not None
            and written.finished < sync.started
            and sync.finished < ack.started
            for sync in self.syncs
        )


def trace_one_thread(strace: str, url: str, directory: Path, *options: str) -> Trace:
    calls = trace(strace, url, directory / "trace", "--threads", "1", "--commits", "12", *options)
    traced = Trace(calls, LOGS[url.partition(":")[0]])
    assert len(traced.acks) == 12
    return traced


@pytest.mark.parametrize(("scheme", "options"), committer.WAYS)
class TestDurable:
    def test_a_commit_is_synced_before_it_is_acknowledged(
        self, strace: str, scheme: str, options: tuple[str, ...], tmp_path: Path
    ) -> None:
        traced = trace_one_thread(strace, f"{scheme}:{tmp_path / 'store'}", tmp_path, *options)
        assert [name for name in traced.acks if not traced.is_durable_to_the_last_write(name)] == []
        assert [name for name in traced.acks if not traced.is_durable(name)] == []

    def test_without_sync_no_commit_is_synced(
        self, strace: str, scheme: str, options: tuple[str, ...], tmp_path: Path
    ) -> None:
        """`sync=off` has an effect, and the test above can fail."""
        url = f"{scheme}:{tmp_path / 'store'}?sync=off"
        traced = trace_one_thread(strace, url, tmp_path, *options)
        assert [name for name in traced.acks if traced.is_durable(name)] == []

    @pytest.mark.parametrize("branches", [(), ("--each",)], ids=["one branch", "a branch each"])
    def test_threads_share_a_sync_and_none_is_acknowledged_before_it(
        self,
        strace: str,
        scheme: str,
        options: tuple[str, ...],
        branches: tuple[str, ...],
        tmp_path: Path,
    ) -> None:
        url = f"{scheme}:{tmp_path / 'store'}"
        six = ("--threads", "6", "--commits", "6", *branches, *options)
        traced = Trace(trace(strace, url, tmp_path / "trace", *six), LOGS[scheme])
        assert len(traced.acks) == 36
        assert [name for name in traced.acks if not traced.is_durable(name)] == []
        if not branches:
            first = min(ack.started for ack in traced.acks.values())
            assert len([sync for sync in traced.syncs if sync.started > first]) < 36

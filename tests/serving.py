"""`morag serve` as a process on a real socket, for all tests that need one.

The environments of clients read this file too, and have nothing that morag needs. So it imports
the standard library only, and starts the server in the environment of `make setup` there.
"""

from __future__ import annotations

import http.client
import os
import re
import resource
import socket
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

Address: TypeAlias = tuple[str, int]

PATIENCE_SECONDS: Final = 60

_READY: Final = re.compile(r"morag ready on (https?)://(\S+):(\d+) store=(\S+)\n")
_SHOWN_LINES: Final = 40
_OF_SETUP: Final = Path(__file__).parents[1] / ".venv" / "bin" / "python"
_PYTHON: Final = sys.executable if find_spec("msgspec") else str(_OF_SETUP)


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Held(NamedTuple):
    """What a server gives back when nobody is connected any more."""

    sockets: int
    threads: int

    def is_within(self, other: Held) -> bool:
        return self.sockets <= other.sockets and self.threads <= other.threads


class Served:
    """A server that runs as long as the `with` block, and is told to stop at its end.

    Whatever fails inside shows the end of what the server said. One that is `quiet` must not have
    said anything but that it is ready. `open_files` limits how many it may have.
    """

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        store: str | None = "memory:",
        extra: Mapping[str, str] | None = None,
        exit_code: int = 0,
        quiet: bool = False,
        open_files: int | None = None,
    ) -> None:
        self._exit_code, self._quiet = exit_code, quiet
        stored = () if store is None else ("--store", store)
        self._errors = directory / f"stderr-{len(list(directory.glob('stderr-*')))}"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                _command("serve", "--port", "0", *stored, *arguments),
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=directory,
                env=_environment(extra),
                text=True,
                preexec_fn=None if open_files is None else lambda: _limit_files(open_files),
            )
        assert self.process.stdout is not None
        self.ready_line = self.process.stdout.readline()
        ready = _READY.fullmatch(self.ready_line)
        if ready is None:
            self._kill()
            raise AssertionError(f"morag serve said {self.ready_line!r}\n{self.errors()}")
        self.scheme, self.host, self.port, self.store = ready[1], ready[2], int(ready[3]), ready[4]
        self.address: Address = self.host, self.port
        self.url = f"{self.scheme}://{self.host}:{self.port}"

    def __enter__(self) -> Served:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self.process.poll() is None:
                self.process.terminate()
            code = self.process.wait(PATIENCE_SECONDS)
        finally:
            self._kill()
            if error is not None:
                error.add_note(self._end_of_errors())
        if error is None:
            assert code == self._exit_code, self._end_of_errors()
            assert not (self._quiet and self.errors()), self._end_of_errors()

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def errors(self) -> str:
        """What it wrote to standard error so far."""
        return self._errors.read_text(errors="replace")

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=PATIENCE_SECONDS)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request over a connection of its own."""
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, named, answer.read())
        finally:
            connection.close()

    def exchange(self, sent: bytes) -> bytes:
        """Everything that the server says to these bytes until it closes the connection."""
        with self.connect() as client, client.makefile("rb") as heard:
            client.sendall(sent)
            return heard.read()

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def resident_bytes(self) -> int:
        return 1024 * self._status("VmRSS")

    def held(self) -> Held:
        sockets = 0
        for entry in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # Closed while we look.
                sockets += str(entry.readlink()).startswith("socket:")
        return Held(sockets, self._status("Threads"))

    def lets_go(self, idle: Held, patience_seconds: float) -> bool:
        """Whether it comes back to hold no more than it held when nobody was connected."""
        end = monotonic() + patience_seconds
        while not self.held().is_within(idle):
            if monotonic() > end:
                return False
            sleep(0.05)
        return True

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
        assert found, f"the system does not tell {name}"
        return int(found[1])

    def _kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _end_of_errors(self) -> str:
        lines = self.errors().splitlines()
        return "\n".join(["The server said:", *lines[-_SHOWN_LINES:]])


def run(
    *arguments: str, directory: Path, extra: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`morag` with these arguments, for commands that end by themselves."""
    return subprocess.run(
        _command(*arguments),
        cwd=directory,
        env=_environment(extra),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def _limit_files(count: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def _command(*arguments: str) -> list[str]:
    return [_PYTHON, "-m", "morag", *arguments]


def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    """No variable of whoever runs the tests may configure a server; nor may a `morag.toml`."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MORAG_")}
    return inherited | dict(extra or {})

"""`morag serve` as a process on a real socket.

The environments of other clients import this file too, and lack morag's dependencies. So it imports
the standard library only, and starts the server with the Python of `make setup` there.
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
_SETUP_PYTHON: Final = Path(__file__).parents[1] / ".venv" / "bin" / "python"
_PYTHON: Final = sys.executable if find_spec("msgspec") else str(_SETUP_PYTHON)


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Resources(NamedTuple):
    """The sockets and threads of a server, which it must release when its clients disconnect."""

    sockets: int
    threads: int

    def is_within(self, other: Resources) -> bool:
        return self.sockets <= other.sockets and self.threads <= other.threads


class Served:
    """A server that runs as long as the `with` block, and gets SIGTERM at its end.

    A failure inside the block shows the end of the server's standard error. With `quiet`, that must
    be empty. `open_files` limits the server's file descriptors.
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
            raise AssertionError(f"morag serve wrote {self.ready_line!r}\n{self.errors()}")
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
        """Standard error so far."""
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
        """Send one request over a new connection."""
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, named, answer.read())
        finally:
            connection.close()

    def exchange(self, sent: bytes) -> bytes:
        """Send these bytes; return all that the server sends until it closes the connection."""
        with self.connect() as client, client.makefile("rb") as reply:
            client.sendall(sent)
            return reply.read()

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def resident_bytes(self) -> int:
        return 1024 * self._status("VmRSS")

    def resources(self) -> Resources:
        sockets = 0
        for entry in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # Closed during the listing.
                sockets += str(entry.readlink()).startswith("socket:")
        return Resources(sockets, self._status("Threads"))

    def becomes_idle(self, idle: Resources, patience_seconds: float) -> bool:
        """Whether the server soon holds no more than `idle`, as before its first client."""
        end = monotonic() + patience_seconds
        while not self.resources().is_within(idle):
            if monotonic() > end:
                return False
            sleep(0.05)
        return True

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
        assert found, f"/proc has no {name}"
        return int(found[1])

    def _kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _end_of_errors(self) -> str:
        lines = self.errors().splitlines()
        return "\n".join(["The server wrote:", *lines[-_SHOWN_LINES:]])


def run(
    *arguments: str, directory: Path, extra: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of `morag` that ends by itself."""
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
    """The environment without `MORAG_*` variables, which would configure the server."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MORAG_")}
    return inherited | dict(extra or {})

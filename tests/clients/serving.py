"""`morag serve` as a process in the environment of `make setup`, which no client shares."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType

_ROOT: Final = Path(__file__).parents[2]
_PYTHON: Final = _ROOT / ".venv" / "bin" / "python"
_READY: Final = re.compile(r"morag ready on (http://\S+)")
_STOP_SECONDS: Final = 30
_SHOWN_LINES: Final = 40


class Morag:
    """Runs as long as the `with` block. Whatever fails inside shows the end of the server's log."""

    address: str

    def __init__(self, directory: Path) -> None:
        self._log = directory / "morag.log"
        self._output = self._log.open("wb")
        self._process = subprocess.Popen(
            [_PYTHON, "-m", "morag", "serve", "--port", "0", "--store", "memory:"],
            stdout=subprocess.PIPE,
            stderr=self._output,
            text=True,
            # Neither a morag.toml nor a variable of whoever runs the tests may configure it.
            cwd=directory,
            env={
                name: value for name, value in os.environ.items() if not name.startswith("MORAG_")
            },
        )

    def __enter__(self) -> Morag:
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        ready = _READY.match(said)
        if ready is None:
            self._kill()
            raise RuntimeError(f"morag serve said {said!r}\n{self._end_of_log()}")
        self.address = ready[1]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        finally:
            self._kill()
            if error is not None:
                error.add_note(self._end_of_log())

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._output.close()

    def _end_of_log(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(["The server said:", *lines[-_SHOWN_LINES:]])

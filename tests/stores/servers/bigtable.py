"""The emulator of Bigtable: built once, started on loopback, stopped by its process id."""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType

MODULE: Final = "cloud.google.com/go/bigtable/cmd/emulator@v1.58.0"
_CACHE: Final = Path(__file__).parents[3] / ".cache" / "stores"


class Bigtable:
    """Keeps everything in memory: who kills it finds it empty when it starts again."""

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    def url(self, project: str, instance: str = "tests") -> str:
        """Any project and any instance is there."""
        return f"bigtable://{project}/{instance}?emulator=127.0.0.1:{self.port}"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [str(_program()), "-host", "127.0.0.1", "-port", str(self.port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None, "asked for above"
        said = self._process.stdout.readline()  # It tells its address when it listens.
        self.port = int(said.strip().rpartition(":")[2])

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Bigtable:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


@cache
def _program() -> Path:
    """The emulator, built if it is not there yet. Needs go on the PATH."""
    kept = _CACHE / f"bigtable-emulator-{MODULE.rpartition('@')[2]}"
    if not kept.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as half:
            environment = {**os.environ, "GOBIN": half}
            subprocess.run(["go", "install", MODULE], check=True, cwd=half, env=environment)
            (Path(half) / "emulator").rename(kept)
    return kept

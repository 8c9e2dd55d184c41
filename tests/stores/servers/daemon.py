"""A database server from a Debian package, as a child process in its own directory."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from typing import TYPE_CHECKING, Any, Final

from tests.download_cache import file_lock
from tests.process_tree import children

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from signal import Signals

_START_SECONDS: Final = 60
_STOP_SECONDS: Final = 60
_SHOWN_LINES: Final = 30


class Daemon:
    """Can be stopped and started again, on the same port with the same data.

    Databases refuse to run as root, so root runs them as the user `nobody`.
    """

    def __init__(self, command: Callable[[Daemon], Sequence[str]]) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="morag-store-"))
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.directory, nobody.pw_uid, nobody.pw_gid)
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": ()}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, command: Sequence[str]) -> None:
        """Run a command as the server's user, and wait for its end."""
        done = subprocess.run(
            command, cwd=self.directory, capture_output=True, text=True, check=False, **self._user
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stdout}{done.stderr}")

    def start(self, is_ready: Callable[[], bool]) -> None:
        with (self.directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                self._command(self),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                **self._user,
            )
        end = time.monotonic() + _START_SECONDS
        while not is_ready():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(
                    f"the server did not start; its output ends with:\n{self._end_of_output()}"
                )
            time.sleep(0.05)

    def stop(self, how: Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(_STOP_SECONDS)
            finally:
                process.kill()
                process.wait()

    def kill(self) -> None:
        """Kill the server and all its child processes at once."""
        process, self._process = self._process, None
        if process is None:
            return
        started = list(children(process.pid))
        process.kill()
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)
        process.wait()
        end = time.monotonic() + _STOP_SECONDS
        while any(Path(f"/proc/{pid}").exists() for pid in started):
            assert time.monotonic() < end, "a killed process is still there"
            time.sleep(0.01)

    def forget(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end_of_output(self) -> str:
        lines = (self.directory / "output").read_text(errors="replace").splitlines()
        return "\n".join(lines[-_SHOWN_LINES:])


def installed(
    program: str, package: str, directories: Callable[[], Sequence[Path]] = tuple
) -> Path:
    """The path of a program of a Debian package, which is installed if it is missing."""
    with file_lock("apt-get"):
        return _installed(program, package, directories)


def _installed(program: str, package: str, directories: Callable[[], Sequence[Path]]) -> Path:
    found = _found(program, directories)
    if found is None:
        install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", package]
        if subprocess.run(install, check=False, stdout=subprocess.DEVNULL).returncode:
            # A fresh machine has no list of packages yet.
            subprocess.run(["apt-get", "update", "-q"], check=True, stdout=subprocess.DEVNULL)
            subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
        found = _found(program, directories)
    if found is None:
        raise RuntimeError(f"the package {package} does not have {program}")
    return Path(found)


def _found(program: str, directories: Callable[[], Sequence[Path]]) -> str | None:
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", *map(str, directories())])
    return shutil.which(program, path=path)

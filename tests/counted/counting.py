"""Counts what one request of each workload costs a server, warm, with one client, in memory.

Three counts, each the least of several equal requests, so that background work does not matter:

- the bytecode instructions that the server executes, in all threads;
- its calls of C functions that encode, decode, hash or compress, because one of them may do the
  work of thousands of instructions;
- the most memory that it holds at once in addition, which shows copies of whole responses.

They are the same on every machine with the same version of Python and of the libraries. They do
not show how long an instruction takes, other work in C (RocksDB, the kernel, CEL), how often
threads hand over to each other, what a cold cache costs, or waiting. `make bench-nessie` does.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from morag.load.data_set import DataSet, Sizes
from morag.load.http_framing import OK, Incoming
from morag.load.target import Target
from morag.load.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.load.driver import Client

Counts: TypeAlias = dict[str, int]

COUNTED: Final = (
    *("config", "reference", "content", "contents", "entries", "prefix", "filter", "log"),
    *("references", "diff", "commit", "read-modify-write", "puts", "merge", "create-delete"),
)

_SIZES: Final = Sizes(keys=500, commits=100, references=100)
_ROOT: Final = Path(__file__).parents[2]
_READY: Final = re.compile(r"morag ready on (\S+) ")
_WARM_REQUESTS: Final = 4
_COUNTED_REQUESTS: Final = 5


class CountedServer:
    """A process of `counted_server.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._commands, self._replies = process.stdin, process.stdout
        ready = _READY.match(self._replies.readline())
        assert ready, "the server did not start"
        self.target = Target(ready[1])

    def command(self, command: str) -> Counts:
        self._commands.write(f"{command}\n")
        self._commands.flush()
        counts: Counts = json.loads(self._replies.readline())
        return counts


@contextmanager
def counted_server() -> Iterator[CountedServer]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.counted.counted_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        env={"PYTHONPATH": str(_ROOT / "src"), "PYTHONHASHSEED": "0"},
        text=True,
    )
    try:
        yield CountedServer(process)
    finally:
        process.kill()
        process.communicate()


def count_workloads() -> dict[str, Counts]:
    """The counts of one request, or one cycle of requests, by workload."""
    with counted_server() as server:
        data = DataSet(server.target, "counted-", _SIZES)
        clients = {name: WORKLOADS[name].prepare(data, 1).clients[0] for name in COUNTED}
        counts: dict[str, Counts] = {name: {} for name in clients}
        with socket.create_connection(server.target.address, timeout=60) as connection:
            for client in clients.values():
                for _ in range(_WARM_REQUESTS):
                    _play(connection, client)
            for what in ("instructions", "bytes"):
                server.command(what)
                for name, client in clients.items():
                    counts[name] |= _least(server, connection, client)
    return counts


def _least(server: CountedServer, connection: socket.socket, client: Client) -> Counts:
    found: list[Counts] = []
    for _ in range(_COUNTED_REQUESTS):
        server.command("read")
        _play(connection, client)
        found.append(server.command("read"))
    return {name: min(counts[name] for counts in found) for name in found[0]}


def _play(connection: socket.socket, client: Client) -> None:
    """Send the requests of the client until they complete its next unit of work."""
    done = 0
    while not done:
        done = client.units
        connection.sendall(client.request)
        incoming = Incoming()
        while (response := incoming.add(connection.recv(1 << 20))) is None:
            pass
        assert response.startswith(OK), response
        client.answered(response)

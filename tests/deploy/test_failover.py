"""If a server dies, nginx uses the others, and no commit is lost or made twice."""

from __future__ import annotations

import json
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Event, Semaphore, Thread
from typing import TYPE_CHECKING, Final

import pytest

import morag
from tests.deploy.catalog_requests import PROBE, create, head, home_of, operations, until
from tests.deploy.nginx_process import Nginx
from tests.safety.history_checks import check_linear, check_once, check_readable, log_of
from tests.server_process import PATIENCE_SECONDS, Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.deploy

_COMMITS: Final = 40  # Of each client.
# With `Connection: close`, or nginx would send the next request on the same connection.
_NOTHING: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_SURELY_SPREAD: Final = 64  # So many branches would not all belong to one server by chance.
_KILLED: Final = -9


def test_no_commit_is_lost_or_doubled_when_a_server_dies(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'morag.db'}"
    with ExitStack() as stack:
        doomed, other = (
            stack.enter_context(served(tmp_path, store, exit_code=code)) for code in (_KILLED, 0)
        )
        nginx = stack.enter_context(Nginx(tmp_path, [doomed.address, other.address]))
        of_doomed, of_other = two_of_each(nginx, doomed, other)
        branches = (*of_doomed, *of_other)
        clients = [
            CommittingClient(nginx, branch, f"{branch} {n}") for branch in branches for n in (1, 2)
        ]

        acknowledged = Semaphore(0)
        with ThreadPoolExecutor(len(clients)) as threads:
            working = [threads.submit(client.work, acknowledged) for client in clients]
            for _ in range(
                _COMMITS
            ):  # A small part of all commits, so that all clients are still working.
                assert acknowledged.acquire(timeout=PATIENCE_SECONDS)
            doomed.process.kill()
            doomed.process.wait()
            for client in clients:
                client.expect_success()
            for done in working:
                done.result()

        # A server that starts on the same port gets the branches back.
        again = stack.enter_context(served(tmp_path, store, "--port", str(doomed.port)))
        until(lambda: home_of(nginx, (again, other), of_doomed[0]) is again)
        assert home_of(nginx, (again, other), of_other[0]) is other

    with morag.open(store) as repo:
        for branch in branches:
            log = log_of(repo, branch)
            check_linear(log)
            own = [client for client in clients if client.branch == branch]
            acknowledgements = {k: v for client in own for k, v in client.acknowledged.items()}
            tried = [message for client in own for message in client.messages]
            assert set(acknowledgements) == set(tried)
            check_once([e for e in log if e.meta.message != PROBE], acknowledgements, tried)
            check_readable(repo, branch)


@pytest.mark.parametrize(
    ("method", "path", "times"),
    [
        ("GET", "/api/v2/trees/main", 2),
        ("POST", "/api/v2/trees/main/history/commit", 1),
        ("POST", "/api/v1/trees/branch/main/merge", 1),
        ("POST", "/api/v2/trees", 1),
        ("PUT", "/api/v2/trees/main@00", 1),
        ("DELETE", "/api/v2/trees/main@00", 1),
        ("DELETE", "/api/v1/namespaces/namespace/main/sales", 1),
    ],
)
def test_a_request_that_may_have_been_executed_is_not_repeated(
    tmp_path: Path, method: str, path: str, times: int
) -> None:
    with HangingUpServer() as first, HangingUpServer() as second:
        with Nginx(tmp_path, [first.address, second.address]) as nginx:
            assert nginx.request(method, path, {}).status == 502
        assert len(first.received + second.received) == times


@pytest.mark.parametrize(
    ("method", "path", "failures"),
    [
        ("GET", "/api/v2/trees/{}", 0),
        ("POST", "/api/v2/trees/{}@00/history/commit", 0),
        ("PUT", "/api/v2/trees/{}@00", 1),
        ("DELETE", "/api/v1/namespaces/namespace/{}/sales", 1),
    ],
)
def test_another_server_is_used_instead_of_an_unreachable_one(
    tmp_path: Path, method: str, path: str, failures: int
) -> None:
    """nginx never repeats a PUT or DELETE, so the first one to the missing server fails."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        unused = free.getsockname()
    with HangingUpServer(_NOTHING) as running:
        with Nginx(tmp_path, [unused, running.address], fail_seconds=600) as nginx:
            branches = [f"branch-{number}" for number in range(_SURELY_SPREAD)]
            found = Counter(
                nginx.request(method, path.format(each), {}).status for each in branches
            )
        assert (found[502], found[200]) == (failures, len(branches) - failures)


class CommittingClient:
    """A client that commits new tables one after the other, and records the outcome of each."""

    def __init__(self, nginx: Nginx, branch: str, name: str) -> None:
        self._nginx = nginx
        self._must_succeed = Event()
        self._seen = head(nginx, branch)
        self.branch = branch
        self.messages = [f"{name} {number}" for number in range(_COMMITS)]
        self.acknowledged: dict[str, str] = {}
        """Hashes by message, also of commits whose response was lost and that are in the log."""

    def expect_success(self) -> None:
        """From now on every request must succeed, because nginx has noticed the dead server."""
        self._must_succeed.set()

    def work(self, acknowledged: Semaphore) -> None:
        for message in self.messages:
            while message not in self.acknowledged:
                self._commit(message)
            acknowledged.release()

    def _commit(self, message: str) -> None:
        must_succeed = self._must_succeed.is_set()
        path = f"/api/v2/trees/{self.branch}@{self._seen}/history/commit"
        answer = self._nginx.request("POST", path, operations(message))
        if answer.status == 200:
            self.acknowledged[message] = json.loads(answer.body)["targetBranch"]["hash"]
            return
        assert (answer.status, must_succeed) == (502, False), answer.body
        # The response was lost, and only the log shows whether the commit was made.
        log = self._nginx.request_json("GET", f"/api/v2/trees/{self.branch}/history")["logEntries"]
        found = [entry["commitMeta"] for entry in log]
        self.acknowledged |= {
            meta["message"]: meta["hash"] for meta in found if meta["message"] == message
        }


class HangingUpServer:
    """A server that reads a request and closes the connection, after a response if there is one."""

    def __init__(self, answer: bytes = b"") -> None:
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        self.received: list[str] = []
        self._thread = Thread(target=self._serve)

    def __enter__(self) -> HangingUpServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                self.received.append(lines.readline().decode())
                length = 0
                while (line := lines.readline()) not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                lines.read(length)
                connection.sendall(self._answer)


@contextmanager
def served(directory: Path, store: str, *arguments: str, exit_code: int = 0) -> Iterator[Served]:
    log = ("--access-log", "json")
    with Served(directory, *log, *arguments, store=store, exit_code=exit_code) as server:
        yield server


def two_of_each(
    nginx: Nginx, doomed: Served, other: Served
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Two branches of each server."""
    homes: dict[Served, list[str]] = {doomed: [], other: []}
    for number in range(_SURELY_SPREAD):
        if min(map(len, homes.values())) == 2:
            break
        branch = f"branch-{number}"
        create(nginx, branch)
        homes[home_of(nginx, (doomed, other), branch)].append(branch)
    first, second = (tuple(branches[:2]) for branches in homes.values())
    assert len(first) == len(second) == 2
    return first, second

"""`morag bench` measures a server, and leaves no trace on it but garbage."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

import pytest

from morag.load.workloads import WORKLOADS
from tests.server_process import PATIENCE_SECONDS, Served, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_SMALL: Final = ("--seconds", "0.05", "--keys", "300")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("server")) as server:
        hash = references(server)["main"]
        source = json.dumps({"type": "BRANCH", "name": "main", "hash": hash}).encode()
        headers = {"Content-Type": "application/json"}
        path = "/api/v2/trees?name=morag-bench-of-somebody-else&type=BRANCH"
        assert server.ask("POST", path, source, headers).status == 200
        yield server


def references(server: Served) -> dict[str, str]:
    found: Any = json.loads(server.ask("GET", "/api/v2/trees").body)
    return {each["name"]: each["hash"] for each in found["references"]}


def test_every_workload_succeeds_and_other_references_stay(server: Served, tmp_path: Path) -> None:
    before = references(server)
    done = run("bench", "--uri", server.url, "--json", *_SMALL, directory=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    played = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["workload"] for each in played] == list(WORKLOADS)
    assert all(each["units"] > 0 and each["failures"] == 0 for each in played)
    assert all(each["p50_millis"] <= each["p99_millis"] <= each["p999_millis"] for each in played)
    assert references(server) == before


def test_it_prints_a_table(server: Served, tmp_path: Path) -> None:
    arguments = ("--uri", server.url, "config", "commit", "commit", "--clients", "2", *_SMALL)
    done = run("bench", *arguments, directory=tmp_path)
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    assert head.split()[:3] == ["workload", "clients", "rate"]
    assert [line.split()[:2] for line in lines] == [["config", "2"], *([["commit", "2"]] * 2)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["contnt"], "there is no workload 'contnt' (did you mean content?)"),
        (["--clients", "0"], "--clients must be at least 1"),
        (["--seconds", "-1"], "--seconds must be above 0"),
        (["--keys", "7"], "--keys must be at least 100"),
    ],
)
def test_a_mistake_is_explained(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = run("bench", *arguments, directory=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("http://127.0.0.1:1", "Nothing listens at http://127.0.0.1:1"),
        ("https://127.0.0.1:1", "plain HTTP"),
        ("nowhere", "must start with http://"),
        ("{url}/elsewhere", "check the path of the server's URI"),
    ],
)
def test_a_wrong_server_is_explained(
    uri: str, message: str, server: Served, tmp_path: Path
) -> None:
    done = run("bench", "--uri", uri.format(url=server.url), directory=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr


@pytest.mark.parametrize("created", [1, 100])
def test_an_interrupt_removes_the_references(created: int, server: Served, tmp_path: Path) -> None:
    before = references(server)
    with _started(server, tmp_path) as started:
        _wait_until(lambda: len(references(server)) >= len(before) + created)
        started.send_signal(signal.SIGINT)
        _, errors = started.communicate(timeout=PATIENCE_SECONDS)
    assert (started.returncode, errors) == (1, "")
    assert references(server) == before


def test_a_server_that_dies_is_reported_with_the_names_that_may_be_left(tmp_path: Path) -> None:
    dying = Served(tmp_path, exit_code=-signal.SIGKILL)
    with dying as server, _started(server, tmp_path) as started:
        _wait_until(lambda: len(references(server)) > 1)
        server.process.kill()
        _, errors = started.communicate(timeout=PATIENCE_SECONDS)
    assert started.returncode == 1
    assert "References that start with morag-bench-" in errors
    assert "Traceback" not in errors


@contextmanager
def _started(server: Served, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A measurement that takes longer than the test."""
    started = subprocess.Popen(
        [sys.executable, "-m", "morag", "bench", "references", "--seconds=60", "--uri", server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=directory,
        env={k: v for k, v in os.environ.items() if not k.startswith("MORAG_")},
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def _wait_until(condition: Callable[[], bool]) -> None:
    end = monotonic() + PATIENCE_SECONDS
    while not condition():
        assert monotonic() < end
        sleep(0.02)

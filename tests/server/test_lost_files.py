"""Store files that disappear while a server runs: no commit is acknowledged into them."""

from __future__ import annotations

import json
import shutil
from itertools import count
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import pytest

from tests.safety.killed_stores import committed
from tests.server.test_full_disk import commit
from tests.server_process import PATIENCE_SECONDS, Served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KINDS: Final = ["rocksdb", "sqlite"]


def remove(store: Path) -> None:
    for path in store.parent.glob(f"{store.name}*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def move_away(store: Path) -> None:
    for path in list(store.parent.glob(f"{store.name}*")):
        path.rename(path.with_name(f"old-{path.name}"))


def replace(store: Path) -> None:
    """Replace the store, like a backup that is restored too early."""
    move_away(store)
    for path in list(store.parent.glob(f"old-{store.name}*")):
        to = path.with_name(path.name.removeprefix("old-"))
        if path.is_dir():
            shutil.copytree(path, to)
        else:
            shutil.copyfile(path, to)


def remove_log(store: Path) -> None:
    for log in (*store.glob("*.log"), *store.parent.glob(f"{store.name}-wal")):
        log.unlink()


def contents(store: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(store.parent)): path.read_bytes()
        for path in sorted(store.parent.rglob("*"))
        if path.is_file() and not path.name.startswith("old-") and path.name != "stderr-0"
    }


@pytest.mark.parametrize("sync", ["on", "off"])
@pytest.mark.parametrize("vanish", [remove, move_away, replace, remove_log])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_acknowledged_into_removed_files(
    kind: str, vanish: Callable[[Path], None], sync: str, tmp_path: Path
) -> None:
    store = tmp_path / "data" / "store"
    with Served(tmp_path, store=f"{kind}:{store}?sync={sync}") as server:
        assert commit(server, "first").status == 200
        vanish(store)
        left = contents(store)
        refused = commit(server, "second")
        assert refused.status == 503
        reason = json.loads(refused.body)["message"]
        assert f"The store '{store}' has lost its file '{store}" in reason
        assert "Stop the server" in reason
        ready = server.ask("GET", "/health/ready")
        assert (ready.status, json.loads(ready.body)["reason"]) == (503, reason)
        history = json.loads(server.ask("GET", "/api/v2/trees/main/history").body)
        seen = [entry["commitMeta"]["message"] for entry in history["logEntries"]]
        assert seen == ["first"]
    if vanish is remove_log:  # The server has saved the contents of its memory.
        assert committed(f"{kind}:{store}") == ["first"]
    else:
        assert contents(store) == left
        assert "Closing the store" in server.errors()
    assert "Traceback" not in server.errors()


@pytest.mark.parametrize("kind", KINDS)
def test_readiness_notices_before_a_client_writes(kind: str, tmp_path: Path) -> None:
    store = tmp_path / "data" / "store"
    with Served(tmp_path, store=f"{kind}:{store}") as server:
        assert commit(server, "first").status == 200
        assert server.ask("GET", "/health/ready").status == 200
        remove(store)
        ready = server.ask("GET", "/health/ready")
        assert ready.status == 503
        assert "has lost its file" in json.loads(ready.body)["reason"]
        assert commit(server, "second").status == 503


@pytest.mark.parametrize("pattern", ["*.sst", "MANIFEST-*", "CURRENT"])
def test_readiness_notices_each_file_that_rocksdb_needs(pattern: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Served(tmp_path, store=f"rocksdb:{store}") as server:
        assert commit(server, "first").status == 200
    with Served(tmp_path, store=f"rocksdb:{store}") as server:
        assert server.ask("GET", "/health/ready").status == 200
        sorted(store.glob(pattern))[0].unlink()
        ready = server.ask("GET", "/health/ready")
        until = monotonic() + PATIENCE_SECONDS  # The server checks all files once a second.
        while ready.status == 200 and monotonic() < until:
            sleep(0.1)
            ready = server.ask("GET", "/health/ready")
        assert ready.status == 503
        assert "has lost its file" in json.loads(ready.body)["reason"]
        assert commit(server, "second").status == 503


@pytest.mark.parametrize("pattern", ["*.sst", "MANIFEST-*", "CURRENT"])
def test_commits_are_refused_soon_after_a_needed_file_is_removed(
    pattern: str, tmp_path: Path
) -> None:
    """Also if no client checks readiness."""
    store = tmp_path / "store"
    with Served(tmp_path, store=f"rocksdb:{store}") as server:
        assert commit(server, "first").status == 200
    with Served(tmp_path, store=f"rocksdb:{store}") as server:
        sorted(store.glob(pattern))[0].unlink()
        until = monotonic() + PATIENCE_SECONDS
        numbers = count()
        while (answer := commit(server, f"more {next(numbers)}")).status == 200:
            assert monotonic() < until, "commits are still accepted"
            sleep(0.1)
        assert answer.status == 503
        assert "has lost its file" in json.loads(answer.body)["message"]
    assert "A check of the store failed: The store" in server.errors()

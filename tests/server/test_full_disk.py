"""A full disk: commits fail with the reason, reads are served, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import pytest

import morag
from tests.server_process import PATIENCE_SECONDS, Answer, Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DISK: Final = "size=32m"
PIECE: Final = bytes(4096)
ROOM_BYTES: Final = 6 << 20
KINDS: Final = ["rocksdb", "sqlite"]
JSON: Final = {"Content-Type": "application/json"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system for this test."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(directory)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("ab", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(PIECE)


def make_some_room(disk: Path) -> None:
    """Free much less than was filled."""
    filler = disk / "filler"
    os.truncate(filler, filler.stat().st_size - ROOM_BYTES)


def commit(server: Served, message: str) -> Answer:
    """Commit more than the rest of a page can hold."""
    head = json.loads(server.ask("GET", "/api/v2/trees/main").body)["reference"]["hash"]
    table = {
        "type": "ICEBERG_TABLE",
        "metadataLocation": 20_000 * "x",
        "snapshotId": 1,
        "schemaId": 1,
        "specId": 1,
        "sortOrderId": 1,
    }
    body = {
        "commitMeta": {"message": message},
        "operations": [{"type": "PUT", "key": {"elements": [message]}, "content": table}],
    }
    path = f"/api/v2/trees/main@{head}/history/commit"
    return server.ask("POST", path, json.dumps(body).encode(), JSON)


def messages(store: str) -> list[str]:
    with morag.open(store) as repo:
        return [entry.meta.message for entry in repo.history.log("main")]


def commit_until_full(server: Served, disk: Path) -> tuple[list[str], Answer]:
    """The acknowledged messages, newest first, and the first refusal."""
    done: list[str] = []
    assert commit(server, "first").status == 200
    done.append("first")
    fill(disk)
    while (answer := commit(server, message := f"c{len(done)}")).status == 200:
        done.insert(0, message)
    return done, answer


@pytest.mark.parametrize("kind", KINDS)
def test_commits_fail_with_the_reason_until_the_disk_has_room_again(
    kind: str, tmp_path: Path, disk: Path
) -> None:
    store = f"{kind}:{disk / 'store'}"
    with Served(tmp_path, store=store) as server:
        done, refused = commit_until_full(server, disk)
        error = json.loads(refused.body)
        assert (refused.status, error["errorCode"]) == (503, "SERVICE_UNAVAILABLE")
        assert f"The store '{disk / 'store'}' cannot write" in error["message"]
        assert "Make room on its disk" in error["message"]
        assert refused.headers["retry-after"] == "1"

        (line,) = server.errors().splitlines()
        assert line.startswith("POST /api/v2/trees/main@")
        assert line.endswith(error["message"])

        for _ in range(2):
            ready = server.ask("GET", "/health/ready")
            assert ready.status == 503
            assert "cannot write" in json.loads(ready.body)["reason"]
            assert commit(server, "refused").status == 503
        assert server.ask("GET", "/health/live").status == 200
        assert server.ask("GET", "/api/v2/trees/main/history").status == 200

        make_some_room(disk)
        end = monotonic() + PATIENCE_SECONDS
        while (ready := server.ask("GET", "/health/ready")).status != 200:
            assert monotonic() < end, (
                f"the disk has room, but the server is not ready: {ready.body!r}"
            )
            sleep(0.1)  # RocksDB checks the disk every 5 seconds.
        assert commit(server, "last").status == 200
        assert server.ask("GET", "/health/ready").status == 200
    assert messages(store) == ["last", *done]


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_killed_after_a_full_disk_has_lost_nothing(
    kind: str, tmp_path: Path, disk: Path
) -> None:
    """The log of the store may end within a write that did not fit."""
    store = f"{kind}:{disk / 'store'}"
    with Served(tmp_path, store=store, exit_code=-signal.SIGKILL) as server:
        done, _ = commit_until_full(server, disk)
        server.process.kill()
    make_some_room(disk)
    assert messages(store) == done


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_killed_after_there_was_room_again_has_lost_nothing(
    kind: str, tmp_path: Path, disk: Path
) -> None:
    """The failed write used a sequence number, so that the log has a gap."""
    store = f"{kind}:{disk / 'store'}"
    with Served(tmp_path, store=store, exit_code=-signal.SIGKILL) as server:
        done, _ = commit_until_full(server, disk)
        make_some_room(disk)
        while server.ask("GET", "/health/ready").status != 200:
            sleep(0.1)
        assert commit(server, "last").status == 200
        server.process.kill()
    assert messages(store) == ["last", *done]


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_on_a_full_disk_stops_cleanly_and_loses_nothing(
    kind: str, tmp_path: Path, disk: Path
) -> None:
    store = f"{kind}:{disk / 'store'}"
    with Served(tmp_path, store=store) as server:
        done, _ = commit_until_full(server, disk)
    assert "Traceback" not in server.errors()
    (disk / "filler").unlink()
    assert messages(store) == done


@pytest.mark.parametrize("kind", KINDS)
def test_opening_a_store_on_a_full_disk_is_refused(kind: str, disk: Path) -> None:
    fill(disk)
    with pytest.raises(morag.ServiceUnavailable, match=r"cannot write .*(full|No space)"):
        morag.open(f"{kind}:{disk / 'store'}")

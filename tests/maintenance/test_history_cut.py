"""`morag admin cut-history`: what stays can be read, checked and continued."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import json

import morag
from morag import Settings
from morag.backend.memory import MemoryBackend
from morag.cli.main import main
from morag.errors import BadRequest, MoragError, ReferenceNotFound
from morag.format import object_codec as codec
from morag.format.ids import NO_ANCESTOR
from morag.format.objects import Commit
from morag.format.records import ObjId
from morag.versions.maintenance.rewriting import cut
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.maintenance.damaged_store import found
from tests.rules.operations import create, delete, head, put, update
from tests.safety.full_repository import SMALL, fill

if TYPE_CHECKING:
    from pathlib import Path

    from morag.backend.base import Row


@pytest.fixture
def backend() -> MemoryBackend:
    backend = MemoryBackend()
    fill(Repository(backend, SMALL, World()))
    return backend


def opened(backend: MemoryBackend) -> Repository:
    return Repository(backend, SMALL, World())


def log(repo: Repository, name: str = "main") -> list[str]:
    return [entry.meta.hash or "" for entry in repo.history.log(name)]


def cut_at(backend: MemoryBackend, hash: str, dry_run: bool = False) -> int:
    return cut(backend, SMALL, World(), hash, dry_run=dry_run).shortened


@pytest.mark.parametrize("distance", range(0, 22, 3))
def test_the_history_ends_at_the_commit_and_all_contents_stay(
    backend: MemoryBackend, distance: int
) -> None:
    repo = opened(backend)
    hashes, contents = log(repo), list(repo.contents.entries("main", with_content=True))
    others = {name: log(repo, name) for name in ("dev", "side")}
    cut_at(backend, hashes[distance])
    again = opened(backend)
    assert log(again) == hashes[: distance + 1]
    assert list(again.contents.entries("main", with_content=True)) == contents
    for name, before in others.items():
        at = before.index(hashes[distance]) + 1 if hashes[distance] in before else len(before)
        assert log(again, name) == before[:at]
    assert found(backend) == []
    for hash in hashes[: distance + 1]:
        assert not again.history.check(f"@{hash}").findings
    update(again, "main", "t01", "after the cut")
    create(again, "main", newer="n")
    assert len(log(again)) == distance + 3
    assert found(backend) == []


def test_nothing_changes_in_a_dry_run(backend: MemoryBackend) -> None:
    rows = list(backend.scan_rows(""))
    hashes = log(opened(backend))
    assert cut_at(backend, hashes[5], dry_run=True) > 0
    assert list(backend.scan_rows("")) == rows


def test_ids_messages_and_everything_but_the_parents_stay(backend: MemoryBackend) -> None:
    hashes = log(opened(backend))
    before = commits(backend)
    cut_at(backend, hashes[5])
    after = commits(backend)
    point = ObjId(bytes.fromhex(hashes[5]))
    assert after[point].tail == (NO_ANCESTOR,)
    assert (after[point].message, after[point].seq) == (before[point].message, before[point].seq)
    for id, commit in before.items():
        tail = commit.tail
        if id != point and point in tail:
            tail = tail[: tail.index(point) + 1]
        assert id == point or after[id].tail == tail


def commits(backend: MemoryBackend) -> dict[ObjId, Commit]:
    found = {row.id: codec.decode(row) for row in backend.scan_rows("", frozenset("c"))}
    return {id: commit for id, commit in found.items() if isinstance(commit, Commit)}


class Interrupted(Exception):
    """Stands for a process that was killed."""


class FailingBackend(MemoryBackend):
    """Fails after some rows were rewritten."""

    left = 1000

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        if self.left == 0:
            raise Interrupted
        self.left -= 1
        return super().swap_row(repo, expected, new)


@pytest.mark.parametrize("writes", range(4))
def test_an_interrupted_cut_does_no_harm_and_is_completed_by_the_next(writes: int) -> None:
    backend = FailingBackend()
    repo = Repository(backend, SMALL, World())
    fill(repo)
    hashes = log(repo)
    backend.left = writes
    with pytest.raises(Interrupted):
        cut_at(backend, hashes[6])
    backend.left = 1000
    between = opened(backend)
    assert log(between) == hashes
    assert not any(between.history.check(f"@{hash}").findings for hash in hashes)
    assert found(backend) == []
    cut_at(backend, hashes[6])
    assert log(opened(backend)) == hashes[:7]
    assert found(backend) == []
    assert cut_at(backend, hashes[6]) == 0


def test_a_history_can_be_cut_several_times(backend: MemoryBackend) -> None:
    hashes = log(opened(backend))
    for distance in (15, 10, 4):
        cut_at(backend, hashes[distance])
        assert log(opened(backend)) == hashes[: distance + 1]
    assert found(backend) == []


def test_damage_to_a_cut_commit_is_found(backend: MemoryBackend) -> None:
    """Its former parent is recorded, and with it the id can be checked."""
    hash = log(opened(backend))[8]
    cut_at(backend, hash)
    id = ObjId(bytes.fromhex(hash))
    (row,) = backend.read_rows("", [id]).values()
    at = row.data.index(commits(backend)[id].message.encode())
    wrong = row.data[:at] + bytes([row.data[at] ^ 1]) + row.data[at + 1 :]
    assert backend.swap_row("", row, with_data(row, wrong))
    assert [finding.id for finding in found(backend)] == [id]
    with pytest.raises(MoragError, match=hash):
        log(opened(backend))


def with_data(row: Row, data: bytes) -> Row:
    return type(row)(row.id, row.kind, data, row.version, row.referenced_micros)


def test_commits_that_cannot_be_cut_are_refused(backend: MemoryBackend) -> None:
    first = log(opened(backend))[-1]
    rows = list(backend.scan_rows(""))
    with pytest.raises(BadRequest, match="its history begins with it"):
        cut_at(backend, first)
    with pytest.raises(ReferenceNotFound):
        cut_at(backend, "ab" * 32)
    with pytest.raises(BadRequest, match="whole hash"):
        cut_at(backend, first[:10])
    with pytest.raises(BadRequest, match="empty history"):
        cut_at(backend, NO_ANCESTOR.hex())
    assert list(backend.scan_rows("")) == rows


@pytest.mark.parametrize("scheme", ["rocksdb", "sqlite"])
def test_the_command_is_a_dry_run_unless_told(
    tmp_path: Path, scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{scheme}:{tmp_path / 'store'}"
    with morag.open(url, Settings(parents_per_commit=3)) as repo:
        for number in range(8):
            create(repo, "main", **{f"t{number}": "t"})
        repo.commit("main", [delete("t1"), put("t1", "again")], "again")
        hashes, newest = log(repo), head(repo)
    command = ["admin", "cut-history", hashes[4], "--store", url]
    assert main(command) == 0
    assert "nothing was changed" in capsys.readouterr().out
    assert main([*command, "--no-dry-run", "--json"]) == 0
    output = capsys.readouterr()
    assert json.decode(output.out) == {
        "commit": hashes[4],
        "removed_parents": [hashes[5]],
        "shortened_tails": 2,
        "dry_run": False,
    }
    assert "restart all servers" in output.err
    with morag.open(url) as repo:
        assert (log(repo), head(repo)) == (hashes[:5], newest)
    assert main(["admin", "check", "--store", url]) == 0
    assert main([*command, "--no-dry-run"]) == 0
    assert "there is nothing to do" in capsys.readouterr().out

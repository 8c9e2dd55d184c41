"""The history of a catalog, read on several threads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

import morag
from morag.client import Client
from morag.errors import ServiceUnavailable
from morag.format.ids import NO_ANCESTOR
from morag.model.content import Namespace
from morag.model.keys import ContentKey
from morag.model.operations import Put
from morag.versions.resolve import object_id
from morag.versions.transfer.commit_spool import CommitSpool
from morag.versions.transfer.history_reader import HistoryReader
from tests.nessie.catalogs import InProcess
from tests.nessie.work import Work, table
from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from morag.catalog import Catalog
    from morag.format.export_messages import ExportedCommit
    from morag.versions.repository import Repository


@pytest.fixture
def repo() -> Iterator[Repository]:
    with morag.open("memory:") as repo:
        yield repo


def read(catalog: Catalog, *names: str, connections: int = 4) -> list[ExportedCommit]:
    """The commits in the order in which they would be imported."""
    first, *others = (object_id(catalog.references.get(name).hash) for name in names)
    with CommitSpool() as spool, HistoryReader(catalog, spool, connections, time.sleep) as reader:
        reader.read(first, others)
        return list(spool.oldest_first())


def assert_connected(commits: list[ExportedCommit]) -> None:
    """Every commit is there once, after its first parent, which has the number before."""
    seqs = {NO_ANCESTOR: 0}
    for commit in commits:
        assert commit.id not in seqs
        assert commit.seq == seqs[commit.parent] + 1
        seqs[commit.id] = commit.seq
    assert all(parent in seqs for commit in commits for parent in commit.merge_parents)


def test_all_references_together_need_each_commit_once(repo: Repository) -> None:
    Work(InProcess(repo), "us").do(commits=10, bulk=5)
    names = [reference.name or "" for reference in repo.references.list()]
    commits = read(repo, *names)
    logged = {hash for name in names for hash in repo.history.hashes(name)}
    assert {commit.id.hex() for commit in commits} >= logged
    assert_connected(commits)


def test_commits_of_a_dropped_branch_are_found_through_the_merge(repo: Repository) -> None:
    repo.commit("main", [Put(ContentKey.of("a"), table(1))], "a")
    repo.references.create_branch("dev", "main")
    for number in range(20):  # More than the first page has.
        repo.commit("dev", [Put(ContentKey.of(f"d{number}"), table(1))], f"dev {number}")
    repo.merge("dev", "main")
    dropped = set(repo.history.hashes("dev"))
    repo.references.delete("dev")
    commits = read(repo, "main")
    assert dropped < {commit.id.hex() for commit in commits}
    assert len(commits) == 22
    assert_connected(commits)


@pytest.mark.parametrize("connections", [1, 4])
def test_a_long_history_is_read_in_ranges(repo: Repository, connections: int) -> None:
    """With a branch whose ranges do not start where those of the default branch do."""
    first = repo.commit("main", [Put(ContentKey.of("a"), Namespace.of("a"))], "first")
    (id,) = first.added.values()
    for number in range(2700):
        namespace = Namespace(id=id, elements=("a",), properties={"n": str(number)})
        repo.commit("main", [Put(ContentKey.of("a"), namespace)], str(number))
    repo.references.create_branch("dev", "main~2600")
    for number in range(600):
        repo.commit("dev", [Put(ContentKey.of(f"d{number}"), table(number))], f"dev {number}")
    commits = read(repo, "main", "dev", connections=connections)
    assert len(commits) == 2701 + 600
    assert_connected(commits)


def test_pages_are_smaller_where_contents_are_large(repo: Repository) -> None:
    content = replace(table(1), metadata_location="x" * 100_000)
    for number in range(20):
        operations = [Put(ContentKey.of(f"{number}-{i}"), content) for i in range(20)]
        repo.commit("main", operations, str(number))
    head, pages = object_id(repo.references.get("main").hash), list[int]()
    with (
        CommitSpool() as spool,
        HistoryReader(repo, spool, 1, time.sleep, pages.append) as reader,
    ):
        reader.read(head, [])
    assert sum(pages) == 20
    assert max(pages[1:]) <= 2  # 4 MB


def test_a_server_that_restarts_meanwhile_is_waited_for(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'data.db'}"
    with morag.open(store) as repo:
        for number in range(100):
            repo.commit("main", [Put(ContentKey.of(f"t{number}"), table(number))], str(number))
        head = object_id(repo.references.get("main").hash)
    server = Served(tmp_path, store=store)
    restarted: list[Served] = []

    def restart(seconds: float) -> None:
        assert seconds > 0
        restarted.append(Served(tmp_path, "--port", str(server.port), store=store))

    with Client(server.url) as client, CommitSpool() as spool:
        assert client.references.get("main").hash == head.hex()
        with server:
            pass  # It ends here.
        with HistoryReader(client, spool, 1, restart) as reader:
            reader.read(head, [])
        assert len(spool) == 100
    (again,) = restarted
    with again:
        pass


def test_a_server_that_stays_away_is_an_error(tmp_path: Path) -> None:
    with Served(tmp_path) as server:
        client = Client(server.url)
    waits: list[float] = []
    with (
        client,
        CommitSpool() as spool,
        HistoryReader(client, spool, 2, waits.append) as reader,
        pytest.raises(ServiceUnavailable, match="Nothing listens"),
    ):
        reader.read(object_id("ab" * 32), [])
    assert sum(waits) > 10

"""The catalog contract: a client of `morag serve`, and a repository in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import morag
from morag import BadRequest, ContentKey, Put, ReferenceNotFound, Repository
from morag.client import Client
from tests.client.contract import (
    CONTENTS,
    NO_ANCESTOR,
    CatalogContract,
    ClientContract,
    add,
)
from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.catalog import Catalog

    def _both_are_catalogs(repository: Repository, client: Client) -> tuple[Catalog, Catalog]:
        """mypy checks here that both implement the whole interface."""
        return repository, client


@pytest.fixture(scope="module")
def repository() -> Iterator[Repository]:
    with morag.open("memory:") as repository:
        yield repository


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with (
        Served(tmp_path_factory.mktemp("serve")) as server,
        Client(f"{server.url}/api/v2") as client,
    ):
        yield client


class TestInProcess(CatalogContract):
    @pytest.fixture
    def catalog(self, repository: Repository) -> Catalog:
        return repository


class TestMorag(ClientContract):
    def test_a_commit_is_split_into_ranges_of_keys(self, client: Client, branch: str) -> None:
        assert client.contents.splits(branch, 4) == ()
        puts = [Put(ContentKey.of(f"t{n:04}"), CONTENTS["table"]) for n in range(1000)]
        client.commit(branch, puts, "many")
        cuts = client.contents.splits(branch, 4)
        assert len(cuts) == 3 and list(cuts) == sorted(cuts)
        assert client.contents.splits(f"{branch}~1", 4) == ()
        with pytest.raises(ReferenceNotFound):
            client.contents.splits(f"{branch}-not", 4)
        with pytest.raises(BadRequest, match="at least one part"):
            client.contents.splits(branch, 0)

    def test_the_ref_log_has_every_move(self, client: Client, branch: str) -> None:
        head = add(client, branch, "t")
        client.references.create_tag(f"{branch}-tag", branch)
        moves = client.references.moves(3).items
        assert [move.operation for move in moves] == [
            "CREATE_REFERENCE",
            "COMMIT",
            "CREATE_REFERENCE",
        ]
        assert [move.reference.name for move in moves] == [f"{branch}-tag", branch, branch]
        assert (moves[1].hash_before, moves[1].hash_after) == (NO_ANCESTOR, head)
        assert (moves[1].commits, moves[0].reference.type) == (1, "TAG")
        first = client.references.moves(1)
        second = client.references.moves(2, first.token)
        assert first.items + second.items == moves
        with pytest.raises(BadRequest, match="at least one"):
            client.references.moves(0)

    def test_a_filter_that_fails_is_a_bad_request(self, client: Client, branch: str) -> None:
        add(client, branch, "a")
        with pytest.raises(BadRequest, match="divide by zero"):
            list(client.contents.keys(branch, filter="1 / 0 == 1"))

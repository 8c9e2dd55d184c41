"""The client against Nessie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag.client import Client, NotOffered, UnexpectedAnswer
from tests.client.contract import ClientContract, add
from tests.nessie.server import Server, rocksdb

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.nessie


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory = tmp_path_factory.mktemp("nessie")
    with (
        Server(rocksdb(directory / "data"), directory / "log.txt", {}) as server,
        Client(server.address) as client,
    ):
        yield client


class TestNessie(ClientContract):
    def test_a_ref_log_is_not_offered(self, client: Client) -> None:
        with pytest.raises(NotOffered, match="keeps no ref-log"):
            client.references.moves()

    def test_splits_are_not_offered(self, client: Client, branch: str) -> None:
        add(client, branch, "a")
        with pytest.raises(NotOffered, match="does not split keys"):
            client.contents.splits(branch, 4)

    def test_a_filter_that_fails_is_an_unexpected_answer(self, client: Client, branch: str) -> None:
        add(client, branch, "a")
        with pytest.raises(UnexpectedAnswer, match="divide by zero") as raised:
            list(client.contents.keys(branch, filter="1 / 0 == 1"))
        assert (raised.value.http_status, raised.value.server_code) == (500, "UNKNOWN")
        assert f"/trees/{branch}/entries" in raised.value.url

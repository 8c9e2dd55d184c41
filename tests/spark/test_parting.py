"""The commit where two references parted, from a server's log and from a store."""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

import pytest

from morag import BadRequest, ContentKey, MoragError, Namespace, Put, ReferenceNotFound
from morag.client import Client
from morag.model.names import NO_ANCESTOR_HASH
from morag.spark import parting
from morag.spark.opening import Origin
from morag.spark.parting import since_parting, split_dots
from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Catalogs:
    """One catalog on a server, and the store of that server."""

    def __init__(self, client: Client, uri: str, store: str) -> None:
        self.client = client
        self.server, self.store = Origin(uri=uri), Origin(store=store)
        self._number = 0

    def commit(self, branch: str) -> str:
        self._number += 1
        name = f"n{self._number}"
        return self.client.commit(branch, [Put(ContentKey.of(name), Namespace.of(name))], name).hash


@pytest.fixture
def catalogs(tmp_path: Path) -> Iterator[Catalogs]:
    store = f"sqlite:{tmp_path / 'catalog.db'}"
    with Served(tmp_path, store=store) as served, Client(served.url) as client:
        yield Catalogs(client, served.url, store)


def test_both_kinds_of_catalogs_find_where_references_parted(catalogs: Catalogs) -> None:
    client, commit = catalogs.client, catalogs.commit
    client.references.create_branch("alien", None)
    empty = since_parting(catalogs.server, "main", "alien")
    parted = commit("main")
    client.references.create_branch("dev", "main")
    ahead, dev = commit("main"), commit("dev")
    for origin in (catalogs.server, catalogs.store):
        assert since_parting(origin, "main", "dev") == (f"@{parted}", f"@{dev}")
        assert since_parting(origin, "dev", "main") == (f"@{parted}", f"@{ahead}")
        assert since_parting(origin, "main~1", "dev") == (f"@{parted}", f"@{dev}")
        assert since_parting(origin, "dev", "dev") == (f"@{dev}", f"@{dev}")
    client.merge("dev", "main")
    later = commit("dev")
    alien = commit("alien")
    for origin in (catalogs.server, catalogs.store):
        assert since_parting(origin, "main", "dev") == (f"@{dev}", f"@{later}"), "since the merge"
        assert since_parting(origin, "main", "alien") == (f"@{NO_ANCESTOR_HASH}", f"@{alien}")
        with pytest.raises(ReferenceNotFound):
            since_parting(origin, "main", "nobody")
    assert empty == (f"@{NO_ANCESTOR_HASH}",) * 2


def test_a_server_and_its_store_agree_on_random_histories(
    catalogs: Catalogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parting, "_FEWEST_ENTRIES", 2)  # So that several pages are read.
    random, names = Random(14), ["main"]
    for _ in range(60):
        one, other = random.choice(names), random.choice(names)
        kind = random.choice(["commit", "commit", "branch", "merge"])
        if kind == "commit":
            catalogs.commit(one)
        elif kind == "branch" and len(names) < 5:
            names.append(f"b{len(names)}")
            catalogs.client.references.create_branch(names[-1], one)
        elif kind == "merge" and one != other:
            with suppress(MoragError):  # There may be nothing to merge.
                catalogs.client.merge(one, other)
    found = 0
    for one, other in combinations(names, 2):
        expected = since_parting(catalogs.store, one, other)
        assert since_parting(catalogs.server, one, other) == expected
        found += expected[0] != f"@{NO_ANCESTOR_HASH}"
    assert found > 3


def test_dots_separate_two_refs() -> None:
    assert split_dots("main...dev") == ("main", "dev")
    assert split_dots("main~1...dev*2026-01-31T12:00:00.000Z") == (
        "main~1",
        "dev*2026-01-31T12:00:00.000Z",
    )
    for text in ("main...", "...dev", "main....dev", "a...b...c"):
        with pytest.raises(BadRequest, match=r"must name two refs, as in main\.\.\.dev"):
            split_dots(text)

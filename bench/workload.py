"""The repository that benchmarks work on: many tables in a hundred namespaces."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import morag
from morag import ContentKey, IcebergTable, Namespace, Put

if TYPE_CHECKING:
    from morag import Repository, Settings

_NAMESPACES = 100
_PUTS_PER_COMMIT = 20_000


class Workload:
    """A repository with `size` tables, and one-put commits that update a random one of them."""

    def __init__(self, url: str, size: int, settings: Settings | None = None) -> None:
        self.size = size
        self.repo: Repository = morag.open(url, settings)
        self._random = Random(size)
        self._ids: dict[ContentKey, str] = {}
        names = [f"db{n:02}" for n in range(_NAMESPACES)]
        self.repo.commit(
            "main", [Put(ContentKey.of(name), Namespace.of(name)) for name in names], "namespaces"
        )
        for start in range(0, size, _PUTS_PER_COMMIT):
            puts = [
                Put(ContentKey.of(names[n % _NAMESPACES], f"table_{n:07}"), table(n))
                for n in range(start, min(start + _PUTS_PER_COMMIT, size))
            ]
            self._ids |= self.repo.commit("main", puts, "tables").added
        self.keys = list(self._ids)

    def reopen(self, url: str) -> None:
        self.repo = morag.open(url)

    def update(self) -> Put:
        key = self._random.choice(self.keys)
        return Put(key, table(self._random.getrandbits(40), self._ids[key]))

    def updates(self, count: int) -> list[Put]:
        """Updates of different keys."""
        keys = self._random.sample(self.keys, count)
        return [Put(key, table(self._random.getrandbits(40), self._ids[key])) for key in keys]


def table(number: int, id: str | None = None) -> IcebergTable:
    return IcebergTable(
        id=id,
        metadata_location=f"s3://lake/warehouse/{number:07}/metadata.json",
        snapshot_id=number,
        schema_id=0,
        spec_id=0,
        sort_order_id=0,
    )

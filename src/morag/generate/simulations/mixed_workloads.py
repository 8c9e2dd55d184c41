"""Writers, readers and users of the web UI at the same time, on the same branches."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from random import Random
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import Struct

from morag.errors import BadRequest
from morag.generate.branch_tips import BranchTip
from morag.generate.generated_keys import key_of_path, namespaces_of
from morag.generate.simulations.simulation import Simulation, paced, simple_table
from morag.model.content import Namespace
from morag.model.keys import ContentKey
from morag.model.operations import Put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from morag.client import Client
    from morag.generate.measuring import Measurements
    from morag.generate.workers import Worker


class Population(Struct, frozen=True):
    """Users of one kind, and what each does per second."""

    users: int = 1
    rate: float = 10.0


class MixedWorkloadsParameters(Struct, frozen=True, kw_only=True):
    branch: str
    branches: int = 1
    namespace: str = ""
    table_prefix: str = "table"
    total_tables: int = 10
    active_tables: int = 1
    """Only these are read and updated."""
    tables_per_commit: int = 20
    """Of the commits that create the tables."""
    read_tables: int = 1
    allow_conflicts: bool = True
    """Otherwise no table is updated by two users at the same time."""
    writers: Population = Population()
    readers: Population = Population()
    ui_users: Population = Population()
    duration_seconds: float = 20.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.active_tables > self.total_tables:
            raise BadRequest("There cannot be more active tables than tables")
        if self.read_tables > self.active_tables:
            raise BadRequest("A reader cannot read more tables than there are active ones")
        writing = self.writers.users + self.ui_users.users
        if not self.allow_conflicts and writing > self.branches * self.active_tables:
            raise BadRequest("Without conflicts, each writer and UI user needs a table to itself")


class MixedWorkloads(Simulation):
    def __init__(
        self, client: Client, measurements: Measurements, parameters: MixedWorkloadsParameters
    ) -> None:
        super().__init__(client, measurements)
        self._parameters = parameters
        prefix = key_of_path(parameters.namespace).elements
        self._tables = [
            ContentKey((*prefix, f"{parameters.table_prefix}-{number}"))
            for number in range(parameters.total_tables)
        ]
        numbers = range(1, parameters.branches)
        self._branches = [parameters.branch, *(f"{parameters.branch}-{n}" for n in numbers)]
        self._locks = {
            (branch, table): Lock()
            for branch in self._branches
            for table in self._tables[: parameters.active_tables]
        }

    @property
    def seconds(self) -> float | None:
        return self._parameters.duration_seconds

    def prepare(self) -> None:
        first = BranchTip.of(self.client.references.create_branch(self._branches[0], None))
        spaces = namespaces_of(self._tables[:1])
        puts = [Put(key, Namespace(elements=key.elements)) for key in spaces]
        step = self._parameters.tables_per_commit
        for start in range(0, len(self._tables), step):
            puts += [Put(key, simple_table("0")) for key in self._tables[start : start + step]]
            message = f"Create tables from {start}"
            first.head = self.client.commit(first.name, puts, message, expected=first.head).hash
            puts = []
        for name in self._branches[1:]:
            self.client.references.create_branch(name, first.spec)

    def users(self) -> Sequence[Worker]:
        given = self._parameters
        return [
            *self._population("writers", given.writers, self._write),
            *self._population("readers", given.readers, self._read),
            *self._population("ui", given.ui_users, self._look_and_write),
        ]

    def _population(
        self, kind: str, population: Population, step: Callable[[str, Random, int], None]
    ) -> list[Worker]:
        return [
            paced(
                partial(step, f"{kind}: ", Random(f"{self._parameters.seed} {kind} {user}")),
                rate=population.rate,
            )
            for user in range(population.users)
        ]

    def _read(self, who: str, random: Random, number: int) -> None:
        active = self._tables[: self._parameters.active_tables]
        keys = random.sample(active, self._parameters.read_tables)
        with self.request(f"{who}read"):
            self.client.contents.get_all(random.choice(self._branches), keys)

    def _look_and_write(self, who: str, random: Random, number: int) -> None:
        with self.request(f"{who}list entries"):
            for _ in self.client.contents.entries(random.choice(self._branches)):
                pass
        self._write(who, random, number)

    def _write(self, who: str, random: Random, number: int) -> None:
        change = simple_table(f"{number}", snapshot_id=random.getrandbits(62) + 1)
        with self._borrowed(random) as (branch, table):
            with self.request(f"{who}find branch"):
                tip = BranchTip.of(self.client.references.get(branch))
            self.update(tip, table, change, f"Update table {table}", who)

    @contextmanager
    def _borrowed(self, random: Random) -> Iterator[tuple[str, ContentKey]]:
        """A random table; without conflicts, one that nobody else updates now."""
        while True:
            found = random.choice(list(self._locks))
            if self._parameters.allow_conflicts:
                yield found
                return
            if self._locks[found].acquire(blocking=False):
                try:
                    yield found
                finally:
                    self._locks[found].release()
                return

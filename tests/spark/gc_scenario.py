"""A lake with its catalog for tests of garbage collection, and a writer of random changes."""

from __future__ import annotations

from contextlib import suppress
from time import time_ns
from typing import TYPE_CHECKING, Any

import morag
from morag import MoragError
from morag.spark import gc
from morag.spark.opening import Origin
from morag.versions.world import World
from tests.spark.iceberg_lake import Lake
from tests.spark.reachable_files import Reachability, files_on_disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from pyspark.sql import DataFrame, SparkSession

DAY_NANOS = 86_400 * 10**9
AGED = "aged"
"""The namespace of tables that PyIceberg cannot change."""


class Scenario:
    """One catalog, its warehouse, and a directory for runs."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.warehouse = directory.resolve() / "warehouse"
        self.warehouse.mkdir()
        self.records = str(directory / "runs")
        url = f"sqlite:{directory}/catalog.db"
        self.catalog = morag.open(f"{url}?sync=off")
        self.origin = Origin(store=url)
        self.lake = Lake(self.catalog, self.warehouse.as_uri())
        self.reachability = Reachability()
        self.world = World()

    def age(self, days: int = 3) -> None:
        """Make files that exist when a collection starts older than a grace period of that many
        days, and later files younger."""
        self.world = World(clock_nanos=lambda: time_ns() + days * DAY_NANOS)

    def files(self) -> set[str]:
        return files_on_disk(self.warehouse)

    def live(self, live_commits: Callable[[str], int]) -> set[str]:
        """The files that live references need."""
        return self.reachability.files(self.catalog, live_commits)

    def collect(self, **options: Any) -> gc.Run:
        return gc.collect(self.spark, self.origin, self.records, world=self.world, **options)

    def sweep(self, run: gc.Run, **options: Any) -> gc.Run:
        return gc.sweep(self.spark, run.path, self.origin, dry_run=False, **options)

    def purge(self, run: gc.Run, **options: Any) -> gc.Run:
        return gc.purge(self.spark, run.path, self.origin, dry_run=False, **options)

    def close(self) -> None:
        self.catalog.close()


def paths(frame: DataFrame) -> set[str]:
    return {row.path for row in frame.select("path").collect()}


def write_file(path: Path, content: bytes = b"something") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


class Writer:
    """Makes random changes of tables, branches and tags."""

    def __init__(self, lake: Lake, random: Random) -> None:
        self._lake = lake
        self._random = random
        self._number = 0

    def step(self) -> str:
        """Make one change, unless it is impossible at the moment. Return its name."""
        changes: dict[str, Callable[[Lake], None]] = {
            "make": lambda on: self._make(on),
            "grow": lambda on: on.grow(self._table(on)),
            "expire": lambda on: on.expire(self._table(on)),
            "drop": lambda on: on.drop(self._table(on)),
            "rename": lambda on: on.rename(self._table(on), self._new("moved.t")),
            "branch": lambda on: self._create("BRANCH", on),
            "tag": lambda on: self._create("TAG", on),
            "delete": lambda on: self._delete(),
            "assign": lambda on: self._assign(),
            "merge": lambda on: self._merge(on),
        }
        weights = [6, 8, 3, 3, 2, 3, 2, 2, 1, 1]
        [name] = self._random.choices(list(changes), weights)
        branches = [each.name or "" for each in self._references("BRANCH")]
        # The files of a table that became live again may still be in quarantine.
        with suppress(MoragError, LookupError, FileNotFoundError):
            changes[name](self._lake.on(self._random.choice(branches)))
        return name

    def _make(self, on: Lake) -> None:
        on.make(self._new("db.t"), rows=self._random.choice([0, 1, 1]))

    def _create(self, kind: str, on: Lake) -> None:
        """Create a reference at any commit of a branch, which may make dead files live again."""
        catalog = self._lake.catalog
        at = f"@{self._random.choice(list(catalog.history.hashes(on.branch)))}"
        if kind == "TAG":
            catalog.references.create_tag(self._new("keep/"), at)
        else:
            catalog.references.create_branch(self._new("etl/"), at)

    def _delete(self) -> None:
        others = [each for each in self._references(None) if each.name != "main"]
        self._lake.catalog.references.delete(self._random.choice(others).name or "")

    def _assign(self) -> None:
        others = [each for each in self._references("BRANCH") if each.name != "main"]
        self._lake.catalog.references.assign(self._random.choice(others).name or "", "main")

    def _merge(self, on: Lake) -> None:
        self._lake.catalog.merge(on.branch, "main")

    def _table(self, on: Lake) -> str:
        entries = self._lake.catalog.contents.entries(on.branch)
        tables = [each.key for each in entries if each.type == "ICEBERG_TABLE"]
        return self._random.choice([str(key) for key in tables if key.elements[0] != AGED])

    def _references(self, kind: Any) -> list[Any]:
        return list(self._lake.catalog.references.list(kind))

    def _new(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number}_{self._random.randrange(10**6)}"

"""Runs as they are recorded: a directory with the plan, a Parquet dataset per step, and its facts.

RUNS/<id>/plan.json
RUNS/<id>/<step>/*.parquet
RUNS/<id>/<step>.json       written last: a step without it has to be made again
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

from morag.model.times import instant_text
from morag.spark.errors import CannotRun
from morag.spark.gc.plan import Plan
from morag.spark.gc.roots import Root
from morag.spark.progress import watched
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from morag.spark.progress import Telling

_PLAN: Final = "plan.json"


class Step(Struct, frozen=True):
    """What is known of a step that was made. The schema spares Spark a look into the files."""

    name: str
    started: str
    finished: str
    rows: int
    schema: str


class Run:
    """One collection of garbage, from its plan to its end. Reading it changes nothing."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        progress: Telling | None = None,
        world: World | None = None,
    ) -> None:
        self.spark = spark
        self.path = path.rstrip("/")
        self.world = world or World()
        self._progress = progress
        plan = _read(spark, f"{self.path}/{_PLAN}")
        if plan is None:
            raise CannotRun(f"'{path}' is not a recorded run: it has no {_PLAN}")
        self.plan = msgspec.json.decode(plan, type=Plan)

    @classmethod
    def start(
        cls,
        spark: SparkSession,
        directory: str,
        plan: Plan,
        progress: Telling | None,
        world: World,
    ) -> Run:
        path = f"{directory.rstrip('/')}/{plan.id}"
        _write(spark, f"{path}/{_PLAN}", msgspec.json.format(msgspec.json.encode(plan)))
        return cls(spark, path, progress, world)

    @property
    def orphans(self) -> DataFrame:
        """The files that nothing leads to: `path`, `size_bytes`, `modified_micros`, `location`."""
        return self.read("orphans")

    @property
    def contents(self) -> DataFrame:
        """What the catalog ever held, as far as it remembers, and whether it is live."""
        return self.read("contents")

    @property
    def live(self) -> DataFrame:
        """The files that something live needs, by `kind`, in all spellings of their `path`."""
        return self._expanded("FILE")

    @property
    def problems(self) -> DataFrame:
        """Metadata of live contents that is not there or cannot be read."""
        return self._expanded("MISSING", "UNREADABLE")

    @property
    def removed(self) -> DataFrame:
        """What became of every file that was to be removed."""
        return self.read("removed")

    def roots(self) -> list[Root]:
        """The references that the run started from. There are as many rows as references."""
        return [Root.of(row) for row in self.read("refs").collect()]

    def check_ready(self) -> None:
        """Refuse to remove anything on the word of a run that does not know everything."""
        if not self.has("orphans"):
            raise CannotRun(f"The run '{self.path}' has not found its orphans yet; resume it first")
        check_known(self.problems, self.plan.ignore_missing, self.path)

    def steps(self) -> list[Step]:
        """The steps that were made, in their order."""
        paths = (each for each in _listed(self.spark, self.path) if each.endswith(".json"))
        texts = (_read(self.spark, each) for each in paths if not each.endswith(f"/{_PLAN}"))
        steps = [msgspec.json.decode(text, type=Step) for text in texts if text is not None]
        return sorted(steps, key=lambda step: step.started)

    def step(self, name: str) -> Step | None:
        """The facts of a step, if it was made."""
        text = _read(self.spark, f"{self.path}/{name}.json")
        return None if text is None else msgspec.json.decode(text, type=Step)

    def has(self, name: str) -> bool:
        return self.step(name) is not None

    def read(self, name: str) -> DataFrame:
        """What a step came to, as it was recorded."""
        step = self.step(name)
        if step is None:
            raise CannotRun(f"The run '{self.path}' has no {name} yet")
        return self.spark.read.schema(step.schema).parquet(f"{self.path}/{name}")

    def once(self, name: str, build: Callable[[], DataFrame]) -> DataFrame:
        """What the step came to when it was made, be it only now."""
        return self.read(name) if self.has(name) else self.make(name, build)

    def make(self, name: str, build: Callable[[], DataFrame]) -> DataFrame:
        """Record what a step comes to, and its facts. This is where Spark does the work."""
        started, seen, facts = self._now(), Observation(), f"{self.path}/{name}.json"
        _remove(self.spark, facts)  # They are those of what is being overwritten.
        with watched(self.spark, name, self._progress):
            frame = build()
            counted = frame.observe(seen, F.count(F.lit(1)).alias("rows"))
            counted.write.mode("overwrite").parquet(f"{self.path}/{name}")
        step = Step(name, started, self._now(), seen.get["rows"], frame.schema.toDDL())
        _write(self.spark, facts, msgspec.json.encode(step))
        return self.read(name)

    def _expanded(self, *roles: str) -> DataFrame:
        frames = [self.read(f"live-{part}") for part in ("metadata", "manifests", "data")]
        return union(frames).where(F.col("role").isin(*roles))

    def _now(self) -> str:
        return instant_text(self.world.clock_nanos())

    def __repr__(self) -> str:
        return f"Run({self.path!r})"


def check_known(found: DataFrame, ignore_missing: bool, path: str) -> None:
    """Refuse to go on where metadata could not be read: its files cannot be told from garbage."""
    roles = ["UNREADABLE"] if ignore_missing else ["MISSING", "UNREADABLE"]
    bad = found.where(F.col("role").isin(*roles))
    first = bad.select("role", "path", "detail").limit(3).collect()
    if first:
        shown = "; ".join(f"{row.path} ({row.detail})" for row in first)
        raise CannotRun(
            f"Nothing is removed, because {bad.count()} metadata files of live contents are "
            f"missing or cannot be read, such as {shown}. All are recorded in '{path}'. See that "
            "all executors reach the lake; if files are lost for good, start a run with "
            "ignore_missing"
        )


def runs(spark: SparkSession, directory: str) -> list[Run]:
    """All runs that are recorded below a directory, oldest first."""
    paths = sorted(_listed(spark, directory))
    return [Run(spark, path) for path in paths if _read(spark, f"{path}/{_PLAN}") is not None]


def union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)


# Small files beside the datasets, through Spark's own file systems: wherever it can write Parquet.


def _file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    context: Any = spark.sparkContext
    found = context._jvm.org.apache.hadoop.fs.Path(path)
    return found.getFileSystem(context._jsc.hadoopConfiguration()), found


def _listed(spark: SparkSession, path: str) -> list[str]:
    system, found = _file_system(spark, path)
    if not system.exists(found):
        return []
    return [each.getPath().toString() for each in system.listStatus(found)]


def _read(spark: SparkSession, path: str) -> bytes | None:
    system, found = _file_system(spark, path)
    if not system.exists(found):
        return None
    stream = system.open(found)
    try:
        read: bytes = stream.readAllBytes()
        return bytes(read)
    finally:
        stream.close()


def _remove(spark: SparkSession, path: str) -> None:
    system, found = _file_system(spark, path)
    system.delete(found, False)


def _write(spark: SparkSession, path: str, text: bytes) -> None:
    """The whole file or none: a reader must not take a half for a fact."""
    system, found = _file_system(spark, path)
    _, half = _file_system(spark, f"{path}.half")
    stream = system.create(half, True)
    try:
        stream.write(bytearray(text))
    finally:
        stream.close()
    system.delete(found, False)
    if not system.rename(half, found):
        raise CannotRun(f"'{path}' cannot be written")

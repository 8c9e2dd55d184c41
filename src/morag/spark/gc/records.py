"""Runs as they are recorded: a directory with the plan, a Parquet dataset per step, and its facts.

RUNS/<id>/plan.json
RUNS/<id>/<step>/*.parquet
RUNS/<id>/<step>.json       written last: a step without it has to be made again
RUNS/<id>/<step>.begun      written first, where it matters that a step was begun
RUNS/<id>/busy              while a job is at work
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

from morag.model.times import instant_text
from morag.spark.errors import CannotRun
from morag.spark.gc import facts
from morag.spark.gc.plan import Plan
from morag.spark.gc.roots import Root
from morag.spark.gc.tries import Tries
from morag.spark.progress import watched
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from morag.spark.progress import Telling

EXPANDED: Final = ("metadata", "manifests", "data")
"""The steps that lead from contents to files."""

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
        plan = facts.read(spark, f"{self.path}/{_PLAN}")
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
        if facts.is_file(spark, directory):
            raise CannotRun(f"'{directory}' is a file; name a directory for the records of runs")
        path = f"{directory.rstrip('/')}/{plan.id}"
        facts.write(spark, f"{path}/{_PLAN}", msgspec.json.format(msgspec.json.encode(plan)))
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
        """The files that something live needs, by `kind`, in all spellings of their `path`.

        Those of the kind `kept` are not named by anything that could be read, and stay because of
        where they are: their `detail`.
        """
        return union([self._expanded("FILE"), self.read("live-kept")])

    @property
    def problems(self) -> DataFrame:
        """Metadata of live contents that is not there, cannot be read, or is not looked for since
        it is on a store of a kind that jobs do not know."""
        return self._expanded("MISSING", "UNREADABLE", "ELSEWHERE")

    @property
    def removed(self) -> DataFrame:
        """What became of every file that was to be removed."""
        return self.tries("removed").outcomes

    def roots(self) -> list[Root]:
        """The references that the run started from, without where others once were: of those the
        step has one for every reference that was ever dropped or moved."""
        return [Root.of(row) for row in self.read("refs").where("live").collect()]

    def steps(self) -> list[Step]:
        """The steps that were made, in their order."""
        paths = (each for each in facts.listed(self.spark, self.path) if each.endswith(".json"))
        texts = (facts.read(self.spark, each) for each in paths if not each.endswith(f"/{_PLAN}"))
        steps = [msgspec.json.decode(text, type=Step) for text in texts if text is not None]
        return sorted(steps, key=lambda step: step.started)

    def step(self, name: str) -> Step | None:
        """The facts of a step, if it was made."""
        text = facts.read(self.spark, f"{self.path}/{name}.json")
        return None if text is None else msgspec.json.decode(text, type=Step)

    def has(self, name: str) -> bool:
        return self.step(name) is not None

    def read(self, name: str) -> DataFrame:
        """What a step came to, as it was recorded."""
        step = self.step(name)
        if step is None:
            made = ", ".join(each.name for each in self.steps())
            raise CannotRun(f"The run '{self.path}' has no step '{name}' yet, but {made}")
        return self.spark.read.schema(step.schema).parquet(f"{self.path}/{name}")

    def once(self, name: str, build: Callable[[], DataFrame]) -> DataFrame:
        """What the step came to when it was made, be it only now."""
        return self.read(name) if self.has(name) else self.make(name, build)

    def make(self, name: str, build: Callable[[], DataFrame]) -> DataFrame:
        """Record what a step comes to, and its facts. This is where Spark does the work."""
        started, seen, told = self.now(), Observation(), f"{self.path}/{name}.json"
        facts.remove(self.spark, told)  # That was of what is being overwritten.
        with watched(self.spark, name, self._progress):
            frame = build()
            counted = frame.observe(seen, F.count(F.lit(1)).alias("rows"))
            counted.write.mode("overwrite").parquet(f"{self.path}/{name}")
        step = Step(name, started, self.now(), seen.get["rows"], frame.schema.toDDL())
        facts.write(self.spark, told, msgspec.json.encode(step))
        return self.read(name)

    def begin(self, name: str) -> None:
        """Leave word that a step is about to be made, even if it never will be."""
        facts.write(self.spark, f"{self.path}/{name}.begun", self.now().encode())

    def was_begun(self, name: str) -> bool:
        return facts.read(self.spark, f"{self.path}/{name}.begun") is not None

    def tries(self, name: str) -> Tries:
        return Tries(self, name)

    def _expanded(self, *roles: str) -> DataFrame:
        frames = [self.read(f"live-{part}") for part in EXPANDED]
        return union(frames).where(F.col("role").isin(*roles))

    def now(self) -> str:
        return instant_text(self.world.clock_nanos())

    def __repr__(self) -> str:
        return f"Run({self.path!r})"


def runs(spark: SparkSession, directory: str) -> list[Run]:
    """All runs that are recorded below a directory, oldest first."""
    paths = sorted(facts.listed(spark, directory))
    return [Run(spark, path) for path in paths if facts.read(spark, f"{path}/{_PLAN}") is not None]


def union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)

"""A recorded run: its steps as DataFrames. `records` has the layout of its directory."""

from __future__ import annotations

from itertools import count, takewhile
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - PySpark's documentation calls it F.
from pyspark.sql.types import DataType, StructType

from morag.model.times import instant_text
from morag.spark.errors import CannotRun
from morag.spark.executors import frame_of, union
from morag.spark.gc.record_files import HadoopFiles
from morag.spark.gc.records import PLAN, Records, StepRecord, recorded_paths
from morag.spark.gc.steps import (
    DOOMED,
    FIRST_MARK,
    ORPHANS,
    PURGED,
    REMOVED,
    RESCUED,
    UNDONE,
    Outcome,
    Role,
    Step,
)
from morag.spark.progress import watched
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from morag.spark.gc.plan import Plan
    from morag.spark.progress import ProgressCallback

UNSUCCESSFUL: Final = (Outcome.FAILED, Outcome.LOST)
"""Outcomes of a file that need attention. An attempt with another outcome is not repeated."""


class Run:
    """One garbage collection, from its plan to its last step. Reading it changes nothing."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        progress: ProgressCallback | None = None,
        world: World | None = None,
    ) -> None:
        self.spark = spark
        self.files = HadoopFiles(spark)
        self.world = world or World()
        self._progress = progress
        self._records = Records(self.files, path)
        self.path = self._records.path
        self.plan = self._records.plan

    @classmethod
    def start(
        cls,
        spark: SparkSession,
        directory: str,
        plan: Plan,
        progress: ProgressCallback | None,
        world: World,
    ) -> Run:
        files = HadoopFiles(spark)
        if files.is_file(directory):
            raise CannotRun(f"'{directory}' is a file; name a directory for the records of runs")
        path = f"{directory.rstrip('/')}/{plan.id}"
        text = msgspec.json.format(msgspec.json.encode(plan))
        files.write(f"{path}/{PLAN}", text)
        return cls(spark, path, progress, world)

    @property
    def orphans(self) -> DataFrame:
        """The files that nothing needs: `path`, `size_bytes`, `modified_micros`, `location`."""
        return self.read(ORPHANS)

    @property
    def contents(self) -> DataFrame:
        """All contents in the history that the catalog still has, and whether they are live."""
        return self.read(FIRST_MARK.contents)

    @property
    def live(self) -> DataFrame:
        """The files that live contents need, by `kind`, with all spellings of their `path`.

        Files of the kind `kept` are protected because of the directory they are in, which is their
        `detail`: no metadata that could be read names them.
        """
        return union([self._expanded(Role.FILE), self.read(FIRST_MARK.protected)])

    @property
    def problems(self) -> DataFrame:
        """Metadata files of live contents that are missing, unreadable, or neither on disk nor on
        S3."""
        return self._expanded(Role.MISSING, Role.UNREADABLE, Role.ELSEWHERE)

    @property
    def kept_directories(self) -> DataFrame:
        """Directories whose files are all protected. If it is because metadata in them is missing,
        `detail` says which."""
        return self._expanded(Role.KEPT)

    @property
    def removed(self) -> DataFrame:
        """The outcome for every file that the sweep has tried to remove."""
        return self.attempts(REMOVED).outcomes

    @property
    def quarantined(self) -> DataFrame:
        """The files in quarantine, which `purge` deletes unless they have become live since."""
        if self.was_begun(UNDONE) or not self.has(REMOVED):
            return frame_of(self.spark, [], DOOMED.schema)
        moved = self.removed.where(F.col("outcome") == Outcome.QUARANTINED).select("path")
        waiting = self.read(DOOMED).join(moved.hint("merge"), "path", "left_semi")
        if self.has(RESCUED):
            rescued = self.attempts(RESCUED).outcomes.where(F.col("outcome") == Outcome.RESTORED)
            waiting = waiting.join(rescued.select("path").hint("merge"), "path", "left_anti")
        return self.attempts(PURGED).remaining(waiting)

    def steps(self) -> list[StepRecord]:
        """The completed steps, in the order in which they started."""
        return self._records.steps()

    def has(self, step: Step) -> bool:
        return self._records.step(step.name) is not None

    def read(self, step: Step | str) -> DataFrame:
        """The recorded rows of a step, by its name or its declaration."""
        name = step if isinstance(step, str) else step.name
        record = self._records.step(name)
        if record is None:
            raise self._records.unknown_step(name)
        return self.spark.read.schema(record.schema).parquet(f"{self.path}/{name}")

    def once(self, step: Step, build: Callable[[], DataFrame]) -> DataFrame:
        """The recorded rows of a step, which is made first if it was not."""
        return self.read(step) if self.has(step) else self.make(step, build)

    def make(self, step: Step, build: Callable[[], DataFrame]) -> DataFrame:
        """Compute a step and record it, replacing an earlier record. Spark works here."""
        started, observed, path = self.now(), Observation(), self._records.record_path(step.name)
        self.files.remove(path)  # It describes the rows that are replaced now.
        with watched(self.spark, step.name, self._progress):
            frame = build()
            assert _columns(frame.schema) == _columns(StructType.fromDDL(step.schema)), step
            counted = frame.observe(observed, F.count(F.lit(1)).alias("rows"))
            counted.write.mode("overwrite").parquet(f"{self.path}/{step.name}")
        rows, schema = observed.get["rows"], frame.schema.toDDL()
        record = StepRecord(step.name, started, self.now(), rows, schema)
        self.files.write(path, msgspec.json.encode(record))
        return self.read(step)

    def begin(self, step: Step) -> None:
        """Record that a step is about to start, even if it never completes."""
        self.files.write(f"{self.path}/{step.name}.begun", self.now().encode())

    def was_begun(self, step: Step) -> bool:
        return self.files.read(f"{self.path}/{step.name}.begun") is not None

    def attempts(self, step: Step) -> Attempts:
        return Attempts(self, step)

    def now(self) -> str:
        return instant_text(self.world.clock_nanos())

    def _expanded(self, *roles: Role) -> DataFrame:
        frames = [self.read(step) for step in FIRST_MARK.expanded]
        return union(frames).where(F.col("role").isin(*roles))

    def __repr__(self) -> str:
        return f"Run({self.path!r})"


class Attempts:
    """All attempts of a run at one step, which may fail for some files.

    Each attempt is a step of its own, so that none overwrites the record of another.
    """

    def __init__(self, run: Run, step: Step) -> None:
        self._run = run
        self._step = step

    @property
    def made(self) -> list[Step]:
        """The completed attempts, oldest first."""
        return list(takewhile(self._run.has, map(self._step.attempt, count(1))))

    @property
    def next(self) -> Step:
        return self._step.attempt(len(self.made) + 1)

    @property
    def outcomes(self) -> DataFrame:
        """The outcome of each file in the last attempt that included it."""
        attempts = [
            self._run.read(step).withColumn("attempt", F.lit(number))
            for number, step in enumerate(self.made or [self._step])
        ]
        last = F.max_by(F.struct("size_bytes", "outcome", "detail"), "attempt").alias("last")
        return union(attempts).groupBy("path").agg(last).select("path", "last.*")

    def remaining(self, files: DataFrame) -> DataFrame:
        """The files that no attempt has dealt with successfully."""
        if not self.made:
            return files
        done = self.outcomes.where(~F.col("outcome").isin(*UNSUCCESSFUL)).select("path")
        return files.join(done.hint("merge"), "path", "left_anti")


def runs(spark: SparkSession, directory: str) -> list[Run]:
    """All runs that are recorded below a directory, oldest first."""
    return [Run(spark, path) for path in recorded_paths(HadoopFiles(spark), directory)]


def _columns(schema: DataType) -> str:
    """Names and types, without which columns may be null: Spark derives that from the query."""
    return schema.simpleString()

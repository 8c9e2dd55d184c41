"""Progress reports of a running job, and cancellation of its Spark jobs when it is interrupted."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import contextmanager, suppress
from threading import Event, current_thread, main_thread
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import InheritableThread

from morag.spark.session import refuse_spark_connect
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

_POLL_SECONDS: Final = 0.5
_GROUP: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
_REAL: Final = World()


class Progress(Struct, frozen=True):
    """`done` counts Spark's tasks, unless the stage counts something better.

    `total` is None while it is unknown, and may still grow: Spark plans a stage when the one
    before it has ended. `rate` is per second, since the stage began.
    """

    stage: str
    done: int
    total: int | None
    rate: float
    seconds_left: float | None

    def __str__(self) -> str:
        if self.total is None:
            return f"{self.stage}: {self.done}, {self.rate:.1f}/s"
        text = f"{self.stage}: {self.done} of {self.total}, {self.rate:.1f}/s"
        return text if self.seconds_left is None else f"{text}, {_span(self.seconds_left)} left"


ProgressCallback: TypeAlias = Callable[[Progress], None]
"""A function that a job calls with its progress, from a thread of its own."""


class Pace:
    """Turns the counts of one stage into rates and remaining times."""

    def __init__(self, stage: str, world: World = _REAL) -> None:
        self._stage = stage
        self._monotonic = world.monotonic
        self._began = world.monotonic()

    def at(self, done: int, total: int | None) -> Progress:
        seconds = self._monotonic() - self._began
        rate = done / seconds if seconds > 0 else 0.0
        left = None if total is None or rate == 0 else max(0, total - done) / rate
        return Progress(self._stage, done, total, rate, left)


@contextmanager
def watched(
    spark: SparkSession, stage: str, callback: ProgressCallback | None, world: World = _REAL
) -> Iterator[None]:
    """Report the progress of Spark's jobs in the `with` block, and cancel them on any exception.

    A KeyboardInterrupt alone would leave them running on the cluster.
    """
    refuse_spark_connect(spark)
    context = spark.sparkContext
    group = f"morag-{world.new_uuid().hex()}"
    before = {name: context.getLocalProperty(name) for name in _GROUP}
    context.setJobGroup(group, f"morag: {stage}", interruptOnCancel=True)
    watch = _Watch(context, group, Pace(stage, world), callback) if callback is not None else None
    try:
        with _interruptible():
            yield
    except BaseException:
        with suppress(Py4JError):  # Report the exception, not that Java is gone as well.
            context.cancelJobGroup(group)
        raise
    finally:
        if watch is not None:
            watch.stop()
        with suppress(Py4JError):
            for name, value in before.items():
                context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None removes it.


def computed(
    spark: SparkSession,
    build: Callable[[], DataFrame],
    stage: str,
    callback: ProgressCallback | None,
) -> DataFrame:
    """The DataFrame that `build` makes; with a callback, computed now and cached.

    Without a callback, its last step runs when the rows are first used. Earlier steps may run at
    once: to run Python over shuffled rows, Spark shuffles them while the DataFrame is built.
    """
    if callback is None:
        return build()
    with watched(spark, stage, callback):
        kept = build().persist()
        kept.count()
    return kept


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make Ctrl-C raise KeyboardInterrupt and do nothing else.

    PySpark's own handler calls the JVM in the middle of another call on the same connection. Both
    calls fail, and the user sees a network error.
    """
    handler = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not _is_of_pyspark(handler):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _is_of_pyspark(handler: object) -> bool:
    return getattr(handler, "__module__", None) == "pyspark.core.context"


class _Watch:
    """A thread that polls Spark's counts and reports them, a last time when the stage is over."""

    def __init__(
        self, context: SparkContext, group: str, pace: Pace, callback: ProgressCallback
    ) -> None:
        self._tracker = context.statusTracker()
        self._group, self._pace, self._callback = group, pace, callback
        self._over = Event()
        # Spark's kind of thread closes its connection to the JVM when it ends.
        self._thread = InheritableThread(target=self._run, name=group, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(Py4JError):  # Without Java there is no progress to report.
            self._poll()
            while not self._over.wait(_POLL_SECONDS):
                self._poll()
            self._poll()

    def _poll(self) -> None:
        counts: dict[int, tuple[int, int]] = {}  # By stage, because jobs may share stages.
        all_known = True
        for job in self._tracker.getJobIdsForGroup(self._group):
            info = self._tracker.getJobInfo(job)
            for stage in [] if info is None else info.stageIds:
                found = self._tracker.getStageInfo(stage)
                if found is None:  # Not planned yet, or already forgotten.
                    all_known = False
                elif info is not None and info.status == "SUCCEEDED":
                    # This includes stages that were skipped because their output existed.
                    counts[stage] = found.numTasks, found.numTasks
                else:
                    counts.setdefault(stage, (found.numCompletedTasks, found.numTasks))
        done = sum(each for each, _ in counts.values())
        total = sum(each for _, each in counts.values())
        self._callback(self._pace.at(done, total if all_known and counts else None))


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"

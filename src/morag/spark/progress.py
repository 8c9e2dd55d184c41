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

    `total` is None while it is unknown, and never grows. Spark plans the parts of a stage one after
    the other, so the total of the whole stage is known only at its end. Until then, the numbers are
    those of a `part`, whose number of tasks is fixed. `rate` is per second, since the stage or the
    part began.
    """

    stage: str
    done: int
    total: int | None
    rate: float
    seconds_left: float | None
    part: int | None = None

    def __str__(self) -> str:
        stage = self.stage if self.part is None else f"{self.stage}, part {self.part}"
        if self.total is None:
            return f"{stage}: {self.done}, {self.rate:.1f}/s"
        text = f"{stage}: {self.done} of {self.total}, {self.rate:.1f}/s"
        return text if not self.seconds_left else f"{text}, {_span(self.seconds_left)} left"


ProgressCallback: TypeAlias = Callable[[Progress], None]
"""A function that a job calls with its progress, from a thread of its own."""


class Pace:
    """Turns the counts of one stage, or of one part of it, into rates and remaining times."""

    def __init__(self, stage: str, world: World = _REAL, part: int | None = None) -> None:
        self._stage = stage
        self._part = part
        self._monotonic = world.monotonic
        self._began = world.monotonic()

    def at(self, done: int, total: int | None) -> Progress:
        seconds = self._monotonic() - self._began
        rate = done / seconds if seconds > 0 else 0.0
        left = None if total is None or rate == 0 else max(0, total - done) / rate
        return Progress(self._stage, done, total, rate, left, self._part)


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
    watch = None if callback is None else _Watch(context, group, stage, world, callback)
    completed = False
    try:
        with _interruptible():
            yield
        completed = True
    except BaseException:
        with suppress(Py4JError):  # Report the exception, not that Java is gone as well.
            context.cancelJobGroup(group)
        raise
    finally:
        if watch is not None:
            watch.stop(completed)
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
    """A thread that polls Spark's counts and reports them, and the sum when the stage is over.

    A part is a stage of Spark. Of those that run at the same time, the oldest is reported.
    """

    def __init__(
        self,
        context: SparkContext,
        group: str,
        stage: str,
        world: World,
        callback: ProgressCallback,
    ) -> None:
        self._tracker = context.statusTracker()
        self._group, self._stage, self._world, self._callback = group, stage, world, callback
        self._pace = Pace(stage, world)
        self._parts: dict[int, Pace] = {}  # By the id of Spark's stage, in the order of reports.
        self._over, self._completed = Event(), False
        # Spark's kind of thread closes its connection to the JVM when it ends.
        self._thread = InheritableThread(target=self._run, name=group, daemon=True)
        self._thread.start()

    def stop(self, completed: bool) -> None:
        self._completed = completed
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(Py4JError):  # Without Java there is no progress to report.
            self._callback(self._pace.at(0, None))
            while not self._over.wait(_POLL_SECONDS):
                self._report_part()
            if self._completed:
                self._report_sum()

    def _report_part(self) -> None:
        running = self._our_stages().intersection(self._tracker.getActiveStageIds())
        found = self._tracker.getStageInfo(min(running)) if running else None
        if found is None:
            return
        stage = found.stageId
        if stage not in self._parts:
            self._parts[stage] = Pace(self._stage, self._world, len(self._parts) + 1)
        self._callback(self._parts[stage].at(found.numCompletedTasks, found.numTasks))

    def _report_sum(self) -> None:
        tasks = 0
        for stage in self._our_stages():
            found = self._tracker.getStageInfo(stage)
            tasks += 0 if found is None else found.numTasks  # None: Spark has forgotten it.
        self._callback(self._pace.at(tasks, tasks or None))

    def _our_stages(self) -> set[int]:
        """All stages of the group: jobs may share them."""
        infos = map(self._tracker.getJobInfo, self._tracker.getJobIdsForGroup(self._group))
        return {stage for info in infos if info is not None for stage in info.stageIds}


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"

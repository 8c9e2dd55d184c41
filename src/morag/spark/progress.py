"""How far a long job is, told while it runs, and a clean end when nobody wants it any more."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import contextmanager, suppress
from threading import Event, current_thread, main_thread
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import InheritableThread

from morag.spark.connect import refuse_connect
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

_LOOK_SECONDS: Final = 0.5
_GROUP: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
_REAL: Final = World()


class Progress(Struct, frozen=True):
    """`done` counts what the stage works through: Spark's tasks, where it says no better.

    `total` is None while nobody knows it, and may still grow: Spark plans a stage when the one
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
        told = f"{self.stage}: {self.done} of {self.total}, {self.rate:.1f}/s"
        return told if self.seconds_left is None else f"{told}, {_span(self.seconds_left)} left"


Telling: TypeAlias = Callable[[Progress], None]
"""What a job is handed to tell its progress with. It is called from a thread of its own."""


class Pace:
    """Counts of one stage on the clock, which makes them rates and times."""

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
    spark: SparkSession, stage: str, tell: Telling | None, world: World = _REAL
) -> Iterator[None]:
    """Tell how Spark's jobs in the `with` block go. Whatever ends it early cancels them.

    A KeyboardInterrupt alone would leave them running on the cluster, with nobody to wait.
    """
    refuse_connect(spark)
    context = spark.sparkContext
    group = f"morag-{world.new_uuid().hex()}"
    before = {name: context.getLocalProperty(name) for name in _GROUP}
    context.setJobGroup(group, f"morag: {stage}", interruptOnCancel=True)
    watch = _Watch(context, group, Pace(stage, world), tell) if tell is not None else None
    try:
        with _interruptible():
            yield
    except BaseException:
        with suppress(Py4JError):  # What went wrong counts, not that Java is gone as well.
            context.cancelJobGroup(group)
        raise
    finally:
        if watch is not None:
            watch.stop()
        with suppress(Py4JError):
            for name, value in before.items():
                context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None removes it.


def computed(
    spark: SparkSession, build: Callable[[], DataFrame], stage: str, tell: Telling | None
) -> DataFrame:
    """What is built, computed now and kept for later, if there is somebody to tell how it goes.

    Otherwise its last step waits until somebody wants the rows. Not all of it does: to run Python
    over rows that were shuffled, Spark has to shuffle them while it is being built.
    """
    if tell is None:
        return build()
    with watched(spark, stage, tell):
        kept = build().persist()
        kept.count()
    return kept


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C be a KeyboardInterrupt, and no more than that.

    PySpark's own handler calls the JVM in the middle of another call on the same connection. Both
    fail, and what comes out is an error of the network.
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
    """A thread that looks at Spark's own counts and tells them; the last ones when it is over."""

    def __init__(self, context: SparkContext, group: str, pace: Pace, tell: Telling) -> None:
        self._tracker = context.statusTracker()
        self._group, self._pace, self._tell = group, pace, tell
        self._over = Event()
        # Spark's kind of thread lets go of its connection to the JVM when it ends.
        self._thread = InheritableThread(target=self._run, name=group, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(Py4JError):  # Without Java there is nothing to tell.
            self._look()
            while not self._over.wait(_LOOK_SECONDS):
                self._look()
            self._look()

    def _look(self) -> None:
        counts: dict[int, tuple[int, int]] = {}  # By stage, as jobs may share one.
        all_known = True
        for job in self._tracker.getJobIdsForGroup(self._group):
            info = self._tracker.getJobInfo(job)
            for stage in [] if info is None else info.stageIds:
                found = self._tracker.getStageInfo(stage)
                if found is None:  # Not planned yet, or already forgotten.
                    all_known = False
                elif info is not None and info.status == "SUCCEEDED":
                    # Also what was skipped because its output was there already.
                    counts[stage] = found.numTasks, found.numTasks
                else:
                    counts.setdefault(stage, (found.numCompletedTasks, found.numTasks))
        done = sum(each for each, _ in counts.values())
        total = sum(each for _, each in counts.values())
        self._tell(self._pace.at(done, total if all_known and counts else None))


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"

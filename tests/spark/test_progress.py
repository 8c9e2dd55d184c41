"""Jobs report their progress, and cancel Spark's jobs when they are interrupted."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import pytest
from pyspark import InheritableThread

from morag.spark import progress
from morag.spark.progress import Pace, Progress, computed, watched
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def test_rates_and_remaining_times_follow_from_counts() -> None:
    clock = iter([100.0, 104.0, 110.0])
    pace = Pace("list", World(monotonic=lambda: next(clock)))
    assert pace.at(8, 20) == Progress("list", 8, 20, 2.0, 6.0)
    assert pace.at(20, 20) == Progress("list", 20, 20, 2.0, 0.0)


def test_without_progress_no_remaining_time_is_given() -> None:
    clock = iter([100.0, 100.0, 101.0])
    pace = Pace("list", World(monotonic=lambda: next(clock)))
    assert pace.at(0, 20) == Progress("list", 0, 20, 0.0, None)
    assert pace.at(5, None) == Progress("list", 5, None, 5.0, None)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Progress("mark", 3, None, 1.5, None), "mark: 3, 1.5/s"),
        (Progress("mark", 3, 9, 1.5, 4.0), "mark: 3 of 9, 1.5/s, 4 s left"),
        (Progress("mark", 0, 9, 0.0, None), "mark: 0 of 9, 0.0/s"),
        (Progress("mark", 9, 9, 3.0, 0.0), "mark: 9 of 9, 3.0/s"),
        (Progress("mark", 3, 9, 1.5, 4.0, 2), "mark, part 2: 3 of 9, 1.5/s, 4 s left"),
        (Progress("mark", 3, 9, 0.1, 61.2), "mark: 3 of 9, 0.1/s, 1 min 1 s left"),
        (Progress("mark", 3, 9, 0.1, 7261.0), "mark: 3 of 9, 0.1/s, 2 h 1 min left"),
    ],
)
def test_progress_is_shown_as_text(given: Progress, text: str) -> None:
    assert str(given) == text


def test_a_stage_is_reported_until_its_end(spark: SparkSession) -> None:
    reported: list[Progress] = []
    with watched(spark, "count", reported.append):
        spark.range(0, 100, 1, numPartitions=7).repartition(3).count()
    assert {each.stage for each in reported} == {"count"}
    last = reported[-1]
    assert last.total is not None
    assert last.done == last.total >= 7
    assert last.part is None


def test_no_total_grows_while_spark_plans_the_parts_of_a_stage(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_POLL_SECONDS", 0.02)
    reported: list[Progress] = []

    def slowly(number: int) -> int:
        Event().wait(0.1)
        return number

    with watched(spark, "count", reported.append):
        for tasks in (2, 4, 6):
            spark.sparkContext.parallelize(range(tasks), tasks).map(slowly).count()
    totals: dict[int | None, set[int | None]] = {}
    for each in reported[1:]:
        totals.setdefault(each.part, set()).add(each.total)
    assert totals == {1: {2}, 2: {4}, 3: {6}, None: {12}}
    assert reported[0].total is None
    assert (reported[-1].done, reported[-1].part) == (12, None)


def test_a_stage_that_failed_is_not_reported_as_done(spark: SparkSession) -> None:
    reported: list[Progress] = []
    with pytest.raises(ValueError), watched(spark, "count", reported.append):
        spark.range(0, 10, 1, numPartitions=2).count()
        raise ValueError
    assert all(each.part is not None or each.total is None for each in reported)


def test_jobs_outside_the_block_are_not_counted(spark: SparkSession) -> None:
    reported: list[Progress] = []
    with watched(spark, "nothing", reported.append):
        pass
    spark.range(0, 10, 1, numPartitions=5).count()
    assert reported[-1].done == 0
    assert reported[-1].total is None


def test_with_a_callback_rows_are_computed_at_once(spark: SparkSession) -> None:
    reported: list[Progress] = []

    def build() -> DataFrame:
        assert spark.range(0, 10, 1, numPartitions=11).count() == 10
        return spark.range(0, 10, 1, numPartitions=5)

    assert not computed(spark, build, "count", None).is_cached
    kept = computed(spark, build, "count", reported.append)
    assert kept.is_cached
    assert reported[-1].stage == "count"
    assert reported[-1].done >= 11 + 5  # Building the DataFrame is part of the work.
    kept.unpersist()


def test_an_exception_cancels_the_running_jobs(spark: SparkSession, tmp_path: Path) -> None:
    runs, failures, running = tmp_path / "runs", [], Event()

    def forever(values: Iterable[int]) -> Iterable[int]:
        runs.touch()
        Event().wait()
        yield from values

    def job() -> None:
        try:
            spark.sparkContext.parallelize([1], 1).mapPartitions(forever).count()
        except Exception as error:  # noqa: BLE001 - Py4J has no common error class.
            failures.append(str(error))

    def interrupt(_: Progress) -> None:
        if runs.exists():
            running.set()

    with pytest.raises(KeyboardInterrupt), watched(spark, "wait", interrupt):
        thread = InheritableThread(target=job)
        thread.start()
        assert running.wait(60)
        raise KeyboardInterrupt
    thread.join(60)
    assert not thread.is_alive()
    assert "cancelled" in failures[0]
    assert spark.range(3).count() == 3

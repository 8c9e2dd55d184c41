"""Rescue: what was removed and is live after all is put back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

from morag.spark.errors import CannotRun
from morag.spark.gc import quarantine
from morag.spark.gc.again import mark_again
from morag.spark.gc.known import check_known
from morag.spark.gc.tries import BAD
from morag.spark.spread import spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from morag.spark.files import Files
    from morag.spark.gc.records import Run
    from morag.spark.opening import Origin


def rescue(run: Run, origin: Origin, files: Files, step: str) -> DataFrame:
    """Put back what has come to life, and return it: the next try at `step` goes by that.

    Everything that is known is put back before anything is complained of.
    """
    live = mark_again(run, origin, files, f"{run.tries(step).next}-again")
    if not run.has("doomed"):
        check_known(run, live, "Nothing is removed")
        return live
    there = run.tries("purged").left(run.read("doomed"))
    back = among(there, live.select(F.col("spelling").alias("path")))
    work = partial(quarantine.restore, files)
    name = run.tries("rescued").next
    _check_rescued(run, run.make(name, partial(spread, back, work, quarantine.OUTCOMES)), name)
    check_known(run, live, "Live files may still be in quarantine, from where undo gets them")
    return live


def among(files: DataFrame, others: DataFrame) -> DataFrame:
    """The files that are there too. Sorted, not broadcast: that would be held by the driver."""
    return files.join(others.select("path").hint("merge"), "path", "left_semi")


def _check_rescued(run: Run, outcomes: DataFrame, step: str) -> None:
    bad = outcomes.where(F.col("outcome").isin(*BAD))
    first = bad.limit(3).collect()
    if first:
        shown = "; ".join(f"{row.path} ({row.outcome.lower()}: {row.detail})" for row in first)
        raise CannotRun(
            f"{bad.count()} files that the run '{run.path}' has removed are live again and could "
            f"not be put back, such as {shown}. All are recorded as its step '{step}'. Mend what "
            "can be mended, and sweep or undo the run once more"
        )

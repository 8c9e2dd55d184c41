"""Tries: what is done to files may fail for some of them, and is then tried again."""

from __future__ import annotations

from functools import reduce
from itertools import count, takewhile
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

if TYPE_CHECKING:
    from morag.spark.gc.records import Run

BAD: Final = ("FAILED", "LOST")
"""Outcomes of a file that need somebody's attention. All others are final."""


class Tries:
    """All tries of a run at one thing.

    Each is a step of its own, `removed`, `removed-2` and so on: no try overwrites what another has
    recorded.
    """

    def __init__(self, run: Run, name: str) -> None:
        self._run = run
        self._name = name

    @property
    def made(self) -> list[str]:
        """The steps, oldest first."""
        return list(takewhile(self._run.has, map(self._step, count(1))))

    @property
    def next(self) -> str:
        return self._step(len(self.made) + 1)

    @property
    def outcomes(self) -> DataFrame:
        """What became of each file, by the last try that had it."""
        tried = [
            self._run.read(step).withColumn("try", F.lit(number))
            for number, step in enumerate(self.made or [self._name])
        ]
        last = F.max_by(F.struct("size_bytes", "outcome", "detail"), "try").alias("last")
        all = reduce(DataFrame.unionByName, tried)
        return all.groupBy("path").agg(last).select("path", "last.*")

    def left(self, files: DataFrame) -> DataFrame:
        """Those of the files that still have to be tried."""
        if not self.made:
            return files
        done = self.outcomes.where(~F.col("outcome").isin(*BAD)).select("path")
        return files.join(done.hint("merge"), "path", "left_anti")

    def _step(self, number: int) -> str:
        return self._name if number == 1 else f"{self._name}-{number}"

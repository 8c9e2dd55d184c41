"""A check of a whole store on Spark, on one core and on two.

    python -m bench.spark.fsck [--commits 100000]

Spark runs on one core, on two, and on one again, so that a machine which others use is equally busy
for both. Each session checks the store once before it is measured, to warm Java and its workers up.
"""

from __future__ import annotations

import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from bench.report import show
from morag.generate.generate_options import GenerateOptions
from morag.spark import session
from morag.spark.fsck import check
from morag.spark.generation import generate
from morag.spark.opening import Origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

BAR: Final = 1.6
_TABLES: Final = 5_000
_BRANCHES: Final = 4


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="bench.spark.fsck")
    parser.add_argument("--commits", type=int, default=100_000)
    commits: int = parser.parse_args(arguments).commits
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        origin = Origin(store=f"sqlite:{directory / 'store.db'}?sync=off")
        spark = _session(directory, 2)
        options = GenerateOptions(
            seed=1, run="bench", commits=commits, branches=_BRANCHES, tables=_TABLES
        )
        generate(spark, origin, options)
        spark.stop()
        one_before, two, one_after = (_seconds(directory, origin, n) for n in (1, 2, 1))
    ratio = (one_before + one_after) / 2 / two
    print(f"{commits:,} commits on {_BRANCHES} branches, {_TABLES:,} tables, SQLite")
    rows = [
        ("local[1]", f"{one_before:.1f} s and {one_after:.1f} s", "", True),
        ("local[2]", f"{two:.1f} s: × {ratio:.2f}", f"≥ × {BAR:g}", ratio >= BAR),
    ]
    show(rows)
    return 0 if ratio >= BAR else 1


def _session(directory: Path, cores: int) -> SparkSession:
    conf = {"spark.ui.showConsoleProgress": "false", "spark.local.dir": str(directory / "local")}
    return session(master=f"local[{cores}]", conf=conf)


def _seconds(directory: Path, origin: Origin, cores: int) -> float:
    spark = _session(directory, cores)
    try:
        _check(spark, origin)
        begun = perf_counter()
        _check(spark, origin)
        return perf_counter() - begun
    finally:
        spark.stop()


def _check(spark: SparkSession, origin: Origin) -> None:
    found = check(spark, origin).findings.count()
    if found:
        raise SystemExit(f"the generated store has {found} findings")


if __name__ == "__main__":
    sys.exit(main())

"""The generator straight into stores, by the number of puts in a commit.

    python -m bench.spark.generator [--puts 400000] [--stores SQLite PostgreSQL RocksDB]

Databases sync what they acknowledge. Each store is filled with two branches of 30,000 tables, whose
keys are chosen at random. PostgreSQL needs CPU time of the same machine.
"""

from __future__ import annotations

import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.report import show
from bench.stores import STORES
from morag.generate.generate_options import GenerateOptions
from morag.spark import session
from morag.spark.generation import generate
from morag.spark.opening import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from bench.report import Row

BAR: Final = 20_000
_BARRED: Final = ("SQLite", "PostgreSQL")
_BARRED_PUTS: Final = 100
_STORES: Final = ("SQLite", "PostgreSQL", "RocksDB")
_PUTS_PER_COMMIT: Final = (1, 10, 100, 1000)
_TABLES: Final = 30_000
_BRANCHES: Final = 2
_SMALL_SHARE: Final = 4
"""Single puts and tens are slower, so fewer of them are measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="bench.spark.generator")
    parser.add_argument("--puts", type=int, default=400_000)
    parser.add_argument("--stores", nargs="*", choices=_STORES, default=_STORES)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        conf = {"spark.ui.showConsoleProgress": "false", "spark.local.dir": f"{name}/local"}
        spark = session(master="local[2]", conf=conf)
        _measured(spark, "SQLite", 2_000, 10)  # Warms Java up.
        rows = [row for store in given.stores for row in _rows(spark, store, given.puts)]
        spark.stop()
    print(f"{_TABLES:,} tables, {_BRANCHES} branches, local[2]")
    show(rows)
    return 0 if all(passed for _, _, _, passed in rows) else 1


def _rows(spark: SparkSession, store: str, puts: int) -> Iterator[Row]:
    for per_commit in _PUTS_PER_COMMIT:
        share = _SMALL_SHARE if per_commit < _BARRED_PUTS else 1
        rate, cpu_micros, put_bytes = _measured(spark, store, puts // share, per_commit)
        has_bar = store in _BARRED and per_commit == _BARRED_PUTS
        yield (
            f"{store}, {per_commit} puts per commit",
            f"{rate:,.0f} puts/s, {cpu_micros:.0f} µs of the tasks' CPU and "
            f"{put_bytes:,.0f} B of rows per put",
            f"≥ {BAR:,}" if has_bar else "",
            not has_bar or rate >= BAR,
        )


def _measured(
    spark: SparkSession, store: str, puts: int, per_commit: int
) -> tuple[float, float, float]:
    """Puts per second, and what each took of CPU time in µs and of rows in bytes."""
    options = GenerateOptions(
        seed=3,
        run="bench",
        commits=max(_BRANCHES, puts // per_commit),
        branches=_BRANCHES,
        tables=_TABLES,
        puts_per_commit=per_commit,
    )
    with tempfile.TemporaryDirectory() as folder, STORES[store](Path(folder)) as url:
        done = generate(spark, Origin(store=url), options)
    return done.puts_per_second, 1e6 * done.task_cpu_seconds / done.puts, done.bytes / done.puts


if __name__ == "__main__":
    sys.exit(main())

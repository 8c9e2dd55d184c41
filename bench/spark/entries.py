"""All entries of a large catalog into a DataFrame, against paging through REST in one thread.

    python -m bench.spark.entries [--keys 1000000]

A server has the store open all the time. Spark runs before and after the client, so that a
machine which others use is equally busy for both. Spark discards the rows.
"""

from __future__ import annotations

import sys
import tempfile
from argparse import ArgumentParser
from collections import deque
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from bench.report import show
from bench.workload import Workload
from morag.client import Client
from morag.spark import session
from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from bench.report import Row

BAR: Final = 5.0
_KEYS_ONLY: Final = "key array<string>, content_type string, content_id string"
_TASKS: Final = "2"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="bench.spark.entries")
    parser.add_argument("--keys", type=int, default=1_000_000)
    keys: int = parser.parse_args(arguments).keys
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        store = f"rocksdb:{directory / 'store'}"
        Workload(f"{store}?sync=off", keys).repo.close()
        with Served(directory, store=store) as served, Client(served.url) as client:
            spark = session(
                master="local[2]",
                conf={
                    "spark.driver.memory": "1g",
                    "spark.ui.showConsoleProgress": "false",
                    "spark.local.dir": str(directory / "local"),
                },
            )
            rows = list(_rows(spark, client, served.url, store))
            spark.stop()
    print(f"{keys:,} keys, local[2], {_TASKS} tasks")
    show(rows)
    return 0 if all(passed for _, _, _, passed in rows) else 1


def _rows(spark: SparkSession, client: Client, uri: str, store: str) -> Iterator[Row]:
    def load(place: str, at: str, schema: str | None) -> DataFrame:
        reader = spark.read.format("morag").option(place, at).option("partitions", _TASKS)
        return (reader if schema is None else reader.schema(schema)).load()

    _taken(load("store", store, None))  # Warms Java up.
    for what, schema, bar in (("with content", None, BAR), ("keys only", _KEYS_ONLY, 0.0)):
        whole = load("store", store, schema)
        before = _taken(whole)
        paged = _paged(client, with_content=schema is None)
        after = _taken(whole)
        mean = (before + after) / 2
        yield (
            f"entries {what}: store, against REST in one thread",
            f"{before:.1f} and {after:.1f} s, against {paged:.1f} s: × {paged / mean:.1f}",
            f"≥ × {bar:g}" if bar else "",
            paged >= bar * mean,
        )
        served = _taken(load("uri", uri, schema))
        yield (
            f"entries {what}: server, against REST in one thread",
            f"{served:.1f} s, against {paged:.1f} s: × {paged / served:.1f}",
            "",
            True,
        )


def _paged(client: Client, *, with_content: bool) -> float:
    entries = client.contents.entries("main", with_content=with_content)
    return _seconds(lambda: deque(entries, maxlen=0))


def _taken(frame: DataFrame) -> float:
    return _seconds(lambda: frame.write.format("noop").mode("overwrite").save())


def _seconds(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())

"""A process that copies a branch to another one as a stream, until a test kills it.

    python -m tests.spark.copier_process URL SOURCE TARGET CHECKPOINT

It prints "started" when the query runs and "batch" after each batch, and runs until it is killed or
its standard input is closed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.functions import unix_micros
from pyspark.sql.streaming.listener import StreamingQueryListener

import morag.spark

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )


class Reporter(StreamingQueryListener):
    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name.
        _print("started")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name.
        _print("batch")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name.
        pass


def main(url: str, source: str, target: str, checkpoint: str) -> None:
    conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    spark = morag.spark.session("copier", master="local[2]", conf=conf)
    spark.streams.addListener(Reporter())
    reader = spark.readStream.format("morag").options(uri=url, ref=source, table="log")
    operations = reader.options(operations="true", max_commits="3").load()
    rows = operations.select(
        "key", "operation", "metadata_location", "snapshot_id",
        unix_micros("commit_time").alias("sequence"),
    )  # fmt: skip
    writer = rows.writeStream.format("morag").options(uri=url, ref=target)
    query = writer.option("checkpointLocation", checkpoint).start()
    sys.stdin.read()
    query.processAllAvailable()
    query.stop()
    spark.stop()


def _print(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A driver of its own, to be killed: copies a branch to another one, as a stream.

    python -m tests.spark.copier URL SOURCE TARGET CHECKPOINT

Says "started" once the query runs and "batch" after each batch, and goes on until it is killed or
its input is closed.
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


class Teller(StreamingQueryListener):
    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name.
        _say("started")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name.
        _say("batch")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name.
        pass


def main(url: str, source: str, target: str, checkpoint: str) -> None:
    conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    spark = morag.spark.session("copier", master="local[2]", conf=conf)
    spark.streams.addListener(Teller())
    reader = spark.readStream.format("morag").options(uri=url, ref=source, table="log")
    made = reader.options(operations="true", max_commits="3").load()
    wanted = made.select(
        "key", "operation", "metadata_location", "snapshot_id",
        unix_micros("commit_time").alias("sequence"),
    )  # fmt: skip
    writer = wanted.writeStream.format("morag").options(uri=url, ref=target)
    query = writer.option("checkpointLocation", checkpoint).start()
    sys.stdin.read()
    query.processAllAvailable()
    query.stop()
    spark.stop()


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Homes: which directories are those of which table or view, now or once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

from morag.spark import lake
from morag.spark.errors import CannotRun
from morag.spark.gc.guesses import own_directory
from morag.spark.gc.records import union
from morag.spark.places import Place, listed_as
from morag.spark.spread import spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from morag.spark.files import Files
    from morag.spark.gc.records import Run
    from morag.spark.spread import Rows

HOMES: Final = "content_id STRING, location STRING"


def find_homes(run: Run, files: Files) -> DataFrame:
    """As metadata tells it: that of all live contents, and of what the catalog remembers."""
    named = run.read("live-metadata").where("role = 'DIRECTORY'")
    live = named.select("content_id", F.col("path").alias("location")).distinct()
    found = as_listed(live)
    return union([found, _former_homes(run, files)]) if run.plan.dropped else found


def as_listed(homes: DataFrame) -> DataFrame:
    """The same, named as listings do. Those that are never listed are left out."""
    return spread(homes, _as_listed, HOMES)


def _former_homes(run: Run, files: Files) -> DataFrame:
    """Where contents that are not live any more were.

    Of each directory with metadata, the file that was written last tells: its name starts with a
    number.
    """
    contents = run.contents.where("NOT live AND type IN ('ICEBERG_TABLE', 'ICEBERG_VIEW')")
    directory = F.regexp_replace("location", "/[^/]*$", "")
    newest = contents.groupBy("content_id", directory).agg(
        F.max("location").alias("location"), F.max_by("key", "location").alias("key")
    )
    wanted = newest.select("content_id", "location", "key")
    return spread(wanted, partial(_told_homes, files), HOMES)


def _told_homes(files: Files, rows: Rows) -> Iterator[tuple[str, str]]:
    for row in rows:
        try:
            found: str | None = lake.outline(files, row["location"]).location
        except (CannotRun, OSError):
            # Removed by an earlier run, perhaps, which could not remove everything.
            found = own_directory(row["key"], row["location"])
        if found is not None:
            yield from _home_rows(row["content_id"], found)


def _as_listed(rows: Rows) -> Iterator[tuple[str, str]]:
    for row in rows:
        yield from _home_rows(row["content_id"], row["location"])


def _home_rows(content_id: str, location: str) -> Iterator[tuple[str, str]]:
    try:
        found = listed_as(location)
    except CannotRun:
        return  # On a store of a kind that we do not know, so nothing is listed there.
    if Place.of(found).path.strip("/"):  # Never a whole disk or bucket by a mistake.
        yield content_id, found

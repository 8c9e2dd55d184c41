"""List: which files there are below the locations of all tables, dropped ones too."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

from morag.spark import lake
from morag.spark.errors import CannotRun
from morag.spark.files import Place, real
from morag.spark.gc.plan import RUN_ID
from morag.spark.gc.records import union
from morag.spark.spread import frame_of, mapped, spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from morag.spark.files import Files
    from morag.spark.gc.records import Run
    from morag.spark.spread import Rows

_LOCATIONS: Final = "location STRING"
_LISTED: Final = "path STRING, size_bytes BIGINT, modified_micros BIGINT, location STRING"
_OURS: Final = ".morag-"


def find_locations(run: Run, files: Files) -> DataFrame:
    """The directories that belong to tables and views, now or once.

    Those inside of others are left out, since they are listed with them. In this order they come
    right after the one that they are in.
    """
    named = run.read("live-metadata").where("role = 'DIRECTORY'").selectExpr("path AS location")
    asked = frame_of(run.spark, [(each,) for each in run.plan.locations], _LOCATIONS)
    found = [named, asked]
    if run.plan.dropped:
        found.append(_dropped(run, files))
    all = spread(union(found).distinct(), _real_locations, _LOCATIONS)
    return mapped(all.repartition(1).sortWithinPartitions("location"), _outermost, _LOCATIONS)


def listed(run: Run, files: Files) -> DataFrame:
    """All files below the recorded locations. What our own jobs keep there is left out."""
    return spread(run.read("locations"), partial(_list, files, run.plan.records), _LISTED)


def _dropped(run: Run, files: Files) -> DataFrame:
    """Where contents that are not live any more were.

    Of each place, the metadata that was written last tells: its name starts with a number.
    """
    contents = run.contents.where("NOT live AND type IN ('ICEBERG_TABLE', 'ICEBERG_VIEW')")
    directory = F.regexp_replace("location", "/[^/]*$", "")
    newest = contents.groupBy("content_id", directory).agg(F.max("location").alias("location"))
    return spread(newest.select("location"), partial(_directories, files), _LOCATIONS)


def _directories(files: Files, rows: Rows) -> Iterator[tuple[str]]:
    for row in rows:
        try:
            yield (lake.outline(files, row["location"]).location,)
        except (FileNotFoundError, CannotRun):
            # Removed by an earlier run, perhaps, which stopped before it was through.
            guess = lake.conventional_location(row["location"])
            if guess is not None:
                yield (guess,)


def _real_locations(rows: Rows) -> Iterator[tuple[str]]:
    for row in rows:
        try:
            location = real(row["location"])
        except CannotRun:
            continue  # On a file system that we do not know, so nothing is listed there.
        if Place.of(location).path.strip("/"):  # Never a whole disk or bucket by a mistake.
            yield (f"{location}/",)


def _outermost(rows: Rows) -> Iterator[tuple[str]]:
    last = "/"
    for row in rows:
        if not row["location"].startswith(last):
            last = row["location"]
            yield (last.removesuffix("/"),)


def _list(files: Files, records: str, rows: Rows) -> Iterator[tuple[Any, ...]]:
    recorded = re.compile(f"{re.escape(records)}/{RUN_ID}/")
    for row in rows:
        for found in files.walk(row["location"], lambda name: name.startswith(_OURS)):
            if not recorded.match(found.path):
                yield found.path, found.size_bytes, found.modified_micros, row["location"]

"""List: which files there are below the locations of all tables, dropped ones too."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

from morag.spark.gc.homes import HOMES, as_listed
from morag.spark.gc.plan import RUN_ID
from morag.spark.gc.records import union
from morag.spark.spread import frame_of, mapped, spread, tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from morag.spark.files import Files
    from morag.spark.gc.records import Run
    from morag.spark.spread import Rows

_LOCATIONS: Final = "location STRING"
# Without a size, it is a directory that is left to list.
_LISTED: Final = "path STRING, size_bytes BIGINT, modified_micros BIGINT, location STRING"
_NOT_LISTED: Final = tuple(
    f"CAST(NULL AS BIGINT) AS {name}" for name in ("size_bytes", "modified_micros")
)
_SPLITS: Final = 2


def find_locations(run: Run) -> DataFrame:
    """The directories to list.

    Those inside of others are left out, since they are listed with them. In this order they come
    right after the one that they are in.
    """
    found = run.read("homes")
    if run.plan.locations:
        asked = frame_of(run.spark, [(None, each) for each in run.plan.locations], HOMES)
        found = union([found, as_listed(asked)])
    named = found.select(F.concat("location", F.lit("/")).alias("location")).repartition(1)
    return mapped(named.sortWithinPartitions("location"), _outermost, _LOCATIONS)


def listed(run: Run, files: Files) -> DataFrame:
    """All files below the recorded locations.

    If these are too few for every task to have one, they are split into what is right inside them,
    and that once more: a single location may be a whole warehouse.
    """
    locations = run.read("locations")
    left = locations.selectExpr("location AS path", *_NOT_LISTED, "location")
    if locations.count() < tasks(run.spark):
        for _ in range(_SPLITS):
            left = spread(left, partial(found_below, files, run.plan.records, whole=False), _LISTED)
    return spread(left, partial(found_below, files, run.plan.records, whole=True), _LISTED)


def found_below(
    files: Files, records: str, rows: Rows, *, whole: bool
) -> Iterator[tuple[Any, ...]]:
    """The files below directories; or those right inside, and directories that are left to list."""
    recorded = re.compile(f"{re.escape(records)}/{RUN_ID}/")
    for row in rows:
        if row["size_bytes"] is not None:
            yield tuple(row)
            continue
        left: list[str] = []
        for found in files.walk(row["path"], partial(_is_skipped, None if whole else left)):
            hidden = _is_hidden(found.path.rpartition("/")[2])
            if not (hidden or recorded.match(found.path)):
                yield found.path, found.size_bytes, found.modified_micros, row["location"]
        for name in left:
            yield f"{row['path']}/{name}", None, None, row["location"]


def _outermost(rows: Rows) -> Iterator[tuple[str]]:
    last = "/"
    for row in rows:
        if not row["location"].startswith(last):
            last = row["location"]
            yield (last.removesuffix("/"),)


def _is_skipped(left: list[str] | None, name: str) -> bool:
    """Whether a walk passes over a directory: one that is hidden, or put into `left` for later."""
    if left is not None and not _is_hidden(name):
        left.append(name)
    return left is not None or _is_hidden(name)


def _is_hidden(name: str) -> bool:
    """What is kept beside the files of tables: markers, checksums, Spark's checkpoints, and what
    our own jobs put aside. The directory of a partition may look like that."""
    return name.startswith((".", "_")) and "=" not in name

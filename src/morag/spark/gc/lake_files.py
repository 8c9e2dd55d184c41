"""Listing: the directories of all tables, dropped ones too, and the files in them."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - PySpark's documentation calls it F.

from morag.spark import iceberg_metadata
from morag.spark.errors import CannotRun
from morag.spark.executors import frame_of, map_partitions, map_rows, task_count, union
from morag.spark.gc.expand import directory_around
from morag.spark.gc.plan import RUN_ID
from morag.spark.gc.steps import FIRST_MARK, HOMES, ICEBERG_TYPES, LISTED, LOCATIONS, Role
from morag.spark.locations import Location, listing_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from morag.spark.executors import Rows
    from morag.spark.files import Files
    from morag.spark.gc.run import Run

_UUID: Final = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_SPLITS: Final = 2
# A row of `LISTED` without a size is a directory that is still to be listed.
_UNLISTED: Final = tuple(
    f"CAST(NULL AS BIGINT) AS {name}" for name in ("size_bytes", "modified_micros")
)


def find_homes(run: Run, files: Files) -> DataFrame:
    """The directories of tables and views, by the metadata of all live contents and, if the plan
    includes dropped ones, of all that are still in the catalog's history."""
    named = run.read(FIRST_MARK.metadata).where(F.col("role") == Role.DIRECTORY)
    live = named.select("content_id", F.col("path").alias("location")).distinct()
    found = _as_listed(live)
    return union([found, _former_homes(run, files)]) if run.plan.dropped else found


def find_locations(run: Run) -> DataFrame:
    """The directories to list.

    A directory inside another one is left out, because it is listed with it. In sorted order it
    follows the one it is in.
    """
    found = run.read(HOMES)
    if run.plan.locations:
        requested = [(None, each) for each in run.plan.locations]
        found = union([found, _as_listed(frame_of(run.spark, requested, HOMES.schema))])
    named = found.select(F.concat("location", F.lit("/")).alias("location")).repartition(1)
    return map_partitions(named.sortWithinPartitions("location"), _outermost, LOCATIONS.schema)


def list_files(run: Run, files: Files) -> DataFrame:
    """All files below the recorded locations.

    If there are fewer locations than tasks, each is split into its entries, and these again:
    a single location may be a whole warehouse.
    """
    locations = run.read(LOCATIONS)
    found = locations.selectExpr("location AS path", *_UNLISTED, "location")
    if locations.count() < task_count(run.spark):
        split = partial(list_below, files, run.plan.records, whole=False)
        for _ in range(_SPLITS):
            found = map_rows(found, split, LISTED.schema)
    return map_rows(found, partial(list_below, files, run.plan.records, whole=True), LISTED.schema)


def list_below(files: Files, records: str, rows: Rows, *, whole: bool) -> Iterator[tuple[Any, ...]]:
    """All files below directories; or, unless `whole`, the files and directories right in them."""
    recorded = re.compile(f"{re.escape(records)}/{RUN_ID}/")
    for row in rows:
        if row["size_bytes"] is not None:
            yield tuple(row)
            continue
        directories: list[str] = []
        skipped = partial(_is_skipped, None if whole else directories)
        for found in files.walk(row["path"], skipped):
            hidden = _is_hidden(found.path.rpartition("/")[2])
            if not (hidden or recorded.match(found.path)):
                yield found.path, found.size_bytes, found.modified_micros, row["location"]
        for name in directories:
            yield f"{row['path']}/{name}", None, None, row["location"]


def own_directory(key: str, metadata_location: str) -> str | None:
    """The directory around a metadata file, if it certainly belongs to the table alone.

    Tables may share a directory for metadata, and the directory above that may hold anything. So
    the names must be those that engines choose: the namespace and the table, or the table and a
    UUID.
    """
    found = directory_around(metadata_location)
    above, _, last = found.rpartition("/")
    namespace = above.rpartition("/")[2].removesuffix(".db")
    elements = key.split(".")
    if elements[0] == "":  # An escaped key: a name has dots.
        return None
    has_uuid = re.fullmatch(f"{re.escape(elements[-1])}_{_UUID}", last) is not None
    return found if has_uuid or elements[-2:] == [namespace, last] else None


def _former_homes(run: Run, files: Files) -> DataFrame:
    """The directories of contents that are not live any more.

    Of each directory with metadata, the newest file is read: its name starts with the highest
    number.
    """
    contents = run.contents.where("NOT live").where(F.col("type").isin(*ICEBERG_TYPES))
    directory = F.regexp_replace("location", "/[^/]*$", "")
    newest = contents.groupBy("content_id", directory).agg(
        F.max("location").alias("location"), F.max_by("key", "location").alias("key")
    )
    wanted = newest.select("content_id", "location", "key")
    return map_rows(wanted, partial(_read_homes, files), HOMES.schema)


def _as_listed(homes: DataFrame) -> DataFrame:
    """The directories as listings spell them, without those on stores that are not listed."""
    return map_rows(homes, _spell_homes, HOMES.schema)


def _read_homes(files: Files, rows: Rows) -> Iterator[tuple[str, str]]:
    for row in rows:
        try:
            outline = iceberg_metadata.read_outline(files, row["location"])
            found: str | None = outline.location
        except (CannotRun, OSError):
            # An earlier run may have removed the metadata, and failed to remove other files.
            found = own_directory(row["key"], row["location"])
        if found is not None:
            yield from _home_rows(row["content_id"], found)


def _spell_homes(rows: Rows) -> Iterator[tuple[str, str]]:
    for row in rows:
        yield from _home_rows(row["content_id"], row["location"])


def _home_rows(content_id: str, location: str) -> Iterator[tuple[str, str]]:
    try:
        found = listing_prefix(location)
    except CannotRun:
        return  # Jobs do not list stores of this kind.
    if Location.of(found).path.strip("/"):  # A wrong location must not list a whole disk or bucket.
        yield content_id, found


def _outermost(rows: Rows) -> Iterator[tuple[str]]:
    last = "/"
    for row in rows:
        if not row["location"].startswith(last):
            last = row["location"]
            yield (last.removesuffix("/"),)


def _is_skipped(directories: list[str] | None, name: str) -> bool:
    """Whether a walk skips a directory: a hidden one, or one that is added to `directories`."""
    if directories is not None and not _is_hidden(name):
        directories.append(name)
    return directories is not None or _is_hidden(name)


def _is_hidden(name: str) -> bool:
    """Markers, checksums, Spark's checkpoints and the quarantine are never garbage. The directory
    of a partition may start with the same characters, but has a `=`."""
    return name.startswith((".", "_")) and "=" not in name

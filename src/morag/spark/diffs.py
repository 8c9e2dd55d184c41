"""Reports how tables differ between two references."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's documentation calls it F.

from morag.model.content import type_name
from morag.spark.catalog_tables import content_of, read_table
from morag.spark.content_comparison import compare
from morag.spark.content_state import state_of
from morag.spark.errors import CannotRun
from morag.spark.executors import map_rows
from morag.spark.files import Files
from morag.spark.parting import since_parting
from morag.spark.progress import computed
from morag.spark.row_changes import rows_between
from morag.spark.table_versions import find_versions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from morag.model.content import Content
    from morag.model.keys import ContentKey
    from morag.spark.content_state import State
    from morag.spark.executors import Rows
    from morag.spark.opening import Origin
    from morag.spark.progress import ProgressCallback

__all__ = ["changed_rows", "diff", "since_parting"]

_DIFFERENCES: Final = (
    "change STRING, key ARRAY<STRING>, old_key ARRAY<STRING>, content_type STRING, "
    "content_id STRING, schema_changes ARRAY<STRING>, other_changes ARRAY<STRING>, "
    "history STRING, operations ARRAY<STRING>, "
    "from_rows BIGINT, to_rows BIGINT, from_files BIGINT, to_files BIGINT, "
    "from_bytes BIGINT, to_bytes BIGINT, from_snapshot_id BIGINT, to_snapshot_id BIGINT, "
    "from_metadata_location STRING, to_metadata_location STRING, problem STRING"
)


def diff(
    spark: SparkSession,
    origin: Origin,
    from_ref: str,
    to_ref: str,
    *,
    files: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
) -> DataFrame:
    """One row per content that differs, by key, from metadata alone: no data file is read.

    `since_parting` gives the two refs for what changed on one reference since it parted from
    another: `diff(spark, origin, *since_parting(origin, "main", "dev"))`.

    `change` is ADDED, REMOVED, CHANGED, RENAMED (then there is an `old_key`, and more may have
    changed), or REPLACED, if the key now holds another content. `history` and `operations` are
    explained at `Comparison`; metadata that could not be read is the `problem` of its row. `files`
    are options of PyIceberg for access to files, such as `s3.endpoint`. With `progress` the rows
    are computed and kept before this returns; otherwise it lists the differences, and metadata is
    read when the rows are used.
    """

    def build() -> DataFrame:
        listed = read_table(spark, origin, "diff", {"from": from_ref, "to": to_ref})
        describe = partial(_describe, Files(dict(files or {})))
        # One partition: to sort into several, Spark would read all metadata twice.
        described = map_rows(_paired(listed), describe, _DIFFERENCES).repartition(1)
        return described.sortWithinPartitions("key")

    return computed(spark, build, "diff", progress)


def changed_rows(
    spark: SparkSession,
    origin: Origin,
    from_ref: str,
    to_ref: str,
    key: ContentKey,
    *,
    on: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
) -> DataFrame:
    """The rows of one table that differ; see `rows_between`. A table that was renamed is found by
    its new key. With `progress` the rows are computed and kept before this returns; otherwise this
    finds the data files that differ, and they are read when the rows are used."""
    with origin.open() as catalog:
        old, new = find_versions(catalog, from_ref, to_ref, key)
    build = partial(rows_between, spark, old, new, on=on, files=files)
    return computed(spark, build, "rows", progress)


def _paired(listed: DataFrame) -> DataFrame:
    """Each content once: if it left one key and appeared under another, it was renamed."""
    both = F.col("change") == "CHANGED"
    id = F.coalesce("to_content_id", "from_content_id")
    # If a client used an id twice, the keys are paired in their order.
    number = F.row_number().over(Window.partitionBy("id", "change").orderBy("key"))
    sides = listed.select(
        id.alias("id"),
        "change",
        F.when(F.col("change") != "ADDED", F.col("key")).alias("old_key"),
        F.when(F.col("change") != "REMOVED", F.col("key")).alias("new_key"),
        "key",
        "from_content",
        "to_content",
    ).select("*", number.alias("number"), both.alias("both"))
    names = ("old_key", "new_key", "from_content", "to_content")
    firsts = (F.first(name, ignorenulls=True).alias(name) for name in names)
    return sides.groupBy("id", "both", "number").agg(*firsts)


def _describe(files: Files, rows: Rows) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        old, new = _decoded(row["from_content"]), _decoded(row["to_content"])
        problems: list[str] = []
        found = compare(_state(old, files, problems), _state(new, files, problems))
        either = new or old
        assert either is not None, "a difference has at least one side"
        key = row["new_key"] or row["old_key"]
        renamed = row["old_key"] is not None and row["old_key"] != key
        yield (
            _change(old, new, renamed),
            key,
            row["old_key"] if renamed else None,
            type_name(either),
            either.id,
            list(found.schema_changes),
            list(found.other_changes),
            found.history,
            list(found.operations),
            found.old.rows,
            found.new.rows,
            found.old.files,
            found.new.files,
            found.old.size_bytes,
            found.new.size_bytes,
            getattr(old, "snapshot_id", None),
            getattr(new, "snapshot_id", None),
            getattr(old, "metadata_location", None),
            getattr(new, "metadata_location", None),
            "; ".join(problems) or None,
        )


def _change(old: Content | None, new: Content | None, renamed: bool) -> str:
    if old is None:
        return "ADDED"
    if new is None:
        return "REMOVED"
    if renamed:
        return "RENAMED"
    return "CHANGED" if old.id == new.id else "REPLACED"


def _state(content: Content | None, files: Files, problems: list[str]) -> State | None:
    if content is None:
        return None
    try:
        return state_of(content, files)
    except (CannotRun, OSError) as error:
        problems.append(str(error))
        return None


def _decoded(text: str | None) -> Content | None:
    return None if text is None else content_of(text)

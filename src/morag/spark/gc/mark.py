"""Mark: which contents are live, and which the catalog remembers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

from morag.errors import ReferenceNotFound
from morag.model.content import UDF, DeltaLakeTable, IcebergTable, IcebergView, type_name
from morag.model.operations import Put
from morag.model.refspecs import RefSpec
from morag.model.times import parse_instant
from morag.spark.spread import mapped, spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

    from morag.client import Client
    from morag.model.content import Content
    from morag.model.keys import ContentKey
    from morag.model.listed import LogEntry
    from morag.spark.opening import Origin
    from morag.spark.spread import Rows
    from morag.versions.repository import Repository

_COMMITS_AT_ONCE: Final = 200  # That a task reads with their operations before it takes others.
_FOREVER: Final = -(1 << 63)

# `oldest`: Live, but what it stands on is not.
_COMMITS: Final = "root STRING, position BIGINT, commit STRING, live BOOLEAN, oldest BOOLEAN"
_CONTENTS: Final = (
    "content_id STRING, type STRING, location STRING, snapshot_id BIGINT, key STRING, live BOOLEAN"
)


def contents_of(origin: Origin, roots: DataFrame, *, whole: bool) -> DataFrame:
    """The contents in the history of the roots, each once, and whether anything holds it live.

    Where not the whole history is wanted, what is not live is left out.
    """
    commits = _commits(origin, roots, whole)
    found = spread(_units(commits), partial(_read_units, origin), _CONTENTS)
    return found.groupBy("content_id", "type", "location", "snapshot_id").agg(
        F.max("key").alias("key"), F.max("live").alias("live")
    )


def _commits(origin: Origin, roots: DataFrame, whole: bool) -> DataFrame:
    """Each commit once, with the place of it in the history of one of its roots."""
    # Few parts: roots that share their history share the walk, if one task has them.
    parts = max(1, min(roots.count(), roots.sparkSession.sparkContext.defaultParallelism))
    walked = mapped(roots.repartition(parts), partial(_walk, origin, whole), _COMMITS)
    return (
        walked.groupBy("commit")
        .agg(
            F.max("live").alias("live"),
            F.max("oldest").alias("oldest"),
            F.min(F.struct("root", "position")).alias("at"),
        )
        .select("commit", "live", "oldest", "at.*")
    )


def _units(commits: DataFrame) -> DataFrame:
    """Commits in a row, to be read together, and those whose whole state is live."""
    order = Window.partitionBy("root", "live").orderBy("position")
    lined = commits.withColumn("line", F.col("position") - F.row_number().over(order)).withColumn(
        "piece", F.floor(F.col("position") / _COMMITS_AT_ONCE)
    )
    ranges = lined.groupBy("root", "live", "line", "piece").agg(
        F.min_by("commit", "position").alias("newest"),
        F.max_by("commit", "position").alias("until"),
    )
    states = commits.where("oldest").selectExpr(
        "commit AS newest", "CAST(NULL AS STRING) AS until", "true AS live"
    )
    return ranges.select("newest", "until", "live").unionByName(states)


def _walk(origin: Origin, whole: bool, roots: Rows) -> Iterator[tuple[Any, ...]]:
    with origin.open() as catalog:
        walker = Walker(catalog, whole)
        for root in roots:
            yield from walker.walk(root)


class Walker:
    """Walks down histories, and stops where it has been before with eyes as good."""

    def __init__(self, catalog: Client | Repository, whole: bool) -> None:
        self._catalog = catalog
        self._whole = whole
        self._live_since: dict[str, int] = {}  # By commit, when it was met as a live one.
        self._met: set[str] = set()

    def walk(self, root: Any) -> Iterator[tuple[Any, ...]]:
        name, most, since = root["root"], root["commits"], root["since_nanos"]
        live: bool = root["live"]
        before: tuple[Any, ...] | None = None
        for position, entry in enumerate(self._log(root)):
            hash, time = entry.meta.hash or "", entry.meta.commit_time
            if live and position > 0:
                live = _is_live(position, time, most, since)
            if before is not None:
                yield (*before, before[3] and not live)
            if hash == root["until"] or not (live or self._whole):
                return
            if self._is_known(hash, live, most, since):
                return
            before = (name, position, hash, live)
        if before is not None:
            yield (*before, False)

    def _log(self, root: Any) -> Iterable[LogEntry]:
        try:
            yield from self._catalog.history.log(RefSpec(None, root["hash"]))
        except ReferenceNotFound:
            if root["live"]:
                raise
            # Nobody keeps what dropped references led to.

    def _is_known(self, hash: str, live: bool, most: int | None, since: int | None) -> bool:
        known = hash in self._met
        self._met.add(hash)
        if not live:
            return known
        if most is not None:  # Elsewhere, the count may have ended earlier.
            return False
        mine = _FOREVER if since is None else since
        known = self._live_since.get(hash, mine + 1) <= mine
        if not known:
            self._live_since[hash] = mine
        return known


def _is_live(position: int, time: str | None, most: int | None, since: int | None) -> bool:
    if most is not None:
        return position < most
    if since is None or time is None:  # What does not tell its age is not old.
        return True
    return parse_instant(time) >= since


def _read_units(origin: Origin, units: Rows) -> Iterator[tuple[Any, ...]]:
    with origin.open() as catalog:
        for unit in units:
            at, live = RefSpec(None, unit["newest"]), unit["live"]
            if unit["until"] is None:
                for entry in catalog.contents.entries(at, with_content=True):
                    if entry.content is not None:
                        yield from _rows(entry.key, entry.content, live)
                continue
            log = catalog.history.log(at, until=unit["until"], with_operations=True)
            for commit in log:
                for operation in commit.operations or ():
                    if isinstance(operation, Put):
                        yield from _rows(operation.key, operation.content, live)


def _rows(key: ContentKey, content: Content, live: bool) -> Iterator[tuple[Any, ...]]:
    snapshot_id = content.snapshot_id if isinstance(content, IcebergTable) else None
    for location in _locations(content):
        yield content.id, type_name(content), location, snapshot_id, key.escaped, live


def _locations(content: Content) -> list[str]:
    match content:
        case IcebergTable() | IcebergView():
            return [content.metadata_location]
        case UDF():
            return [content.metadata_location] if content.metadata_location else []
        case DeltaLakeTable():
            last = [content.last_checkpoint] if content.last_checkpoint else []
            return [
                *content.metadata_location_history,
                *content.checkpoint_location_history,
                *last,
            ]
        case _:
            return []

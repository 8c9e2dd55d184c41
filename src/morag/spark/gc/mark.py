"""Mark: the references a run starts from, and the contents that are live or were once.

A commit is live if a reference leads to it and the reference's cut-off policy includes it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's documentation calls it F.

from morag.client import NotOffered
from morag.errors import ReferenceNotFound
from morag.model.content import UDF, DeltaLakeTable, IcebergTable, IcebergView, type_name
from morag.model.operations import Put
from morag.model.refspecs import RefSpec
from morag.model.times import parse_instant
from morag.spark.executors import frame_of, map_partitions, map_rows
from morag.spark.gc.plan import Cutoff
from morag.spark.gc.steps import FIRST_MARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from morag.catalog import Catalog
    from morag.model.content import Content
    from morag.model.keys import ContentKey
    from morag.model.results import LogEntry
    from morag.spark.executors import Rows
    from morag.spark.gc.plan import Plan
    from morag.spark.gc.run import Run
    from morag.spark.opening import Origin

_MOVES_PER_PAGE: Final = 1_000
# After these operations, the commit that the reference had before is still below its head.
_GROWING: Final = frozenset({"COMMIT", "MERGE", "TRANSPLANT", "CREATE_REFERENCE"})

_COMMITS_PER_UNIT: Final = 200  # That a task reads with their operations before it takes others.
_FOREVER: Final = -(1 << 63)

# `oldest`: the commit is live, and its parent is not.
_COMMITS: Final = "root STRING, position BIGINT, commit STRING, live BOOLEAN, oldest BOOLEAN"


class Root(Struct, frozen=True):
    """A commit where the search for contents starts. Without a cut-off, nothing there is live."""

    root: str
    hash: str
    cutoff: Cutoff | None
    until: str | None = None

    @classmethod
    def of(cls, row: Any) -> Root:
        cutoff = Cutoff(row.commits, row.since_nanos) if row.live else None
        return cls(row.root, row.hash, cutoff)

    def row(self) -> tuple[Any, ...]:
        cutoff = self.cutoff or Cutoff()
        live = self.cutoff is not None
        return self.root, self.hash, cutoff.commits, cutoff.since_nanos, live, self.until


def find_roots(catalog: Catalog, plan: Plan, *, dropped: bool) -> list[Root]:
    """All branches and tags, and, with `dropped`, the former heads of dropped and reassigned
    references, as far as the ref-log has them."""
    roots = [
        Root(each.name or "", each.hash, plan.policies.cutoff(each.name or "", plan.now_nanos))
        for each in catalog.references.list()
    ]
    if dropped:
        heads = {root.hash for root in roots}
        roots += [Root(f"@{hash}", hash, None) for hash in sorted(_former_heads(catalog) - heads)]
    return roots


def roots_frame(spark: SparkSession, roots: Sequence[Root]) -> DataFrame:
    return frame_of(spark, [root.row() for root in roots], FIRST_MARK.refs.schema)


def recorded_roots(run: Run) -> list[Root]:
    """The references that the run started from, without former heads, which may be many."""
    return [Root.of(row) for row in run.read(FIRST_MARK.refs).where("live").collect()]


def find_contents(origin: Origin, roots: DataFrame, *, whole: bool) -> DataFrame:
    """The contents in the history of the roots, each once, and whether any commit keeps it live.

    Unless the `whole` history is wanted, only live contents are returned.
    """
    commits = _commits(origin, roots, whole)
    found = map_rows(_units(commits), partial(_read_units, origin), FIRST_MARK.contents.schema)
    return found.groupBy("content_id", "type", "location", "snapshot_id").agg(
        F.max("key").alias("key"), F.max("live").alias("live")
    )


def _former_heads(catalog: Catalog) -> set[str]:
    found: set[str] = set()
    token = None
    while True:
        try:
            page = catalog.references.moves(_MOVES_PER_PAGE, token)
        except NotOffered:
            return found  # Nessie has no ref-log: files of dropped branches alone are kept.
        found |= {m.hash_before for m in page.items if m.operation not in _GROWING}
        token = page.token
        if token is None:
            return found


def _commits(origin: Origin, roots: DataFrame, whole: bool) -> DataFrame:
    """Each commit once, with its position in the history of one of its roots."""
    # Few partitions: roots that share history share the walk if one task has them.
    partitions = max(1, min(roots.count(), roots.sparkSession.sparkContext.defaultParallelism))
    walked = map_partitions(roots.repartition(partitions), partial(_walk, origin, whole), _COMMITS)
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
    """Ranges of consecutive commits, and single commits whose whole state is live."""
    order = Window.partitionBy("root", "live").orderBy("position")
    # Positions without a gap between them differ from their row numbers by the same number.
    stretches = commits.withColumn("stretch", F.col("position") - F.row_number().over(order))
    pieces = stretches.withColumn("piece", F.floor(F.col("position") / _COMMITS_PER_UNIT))
    ranges = pieces.groupBy("root", "live", "stretch", "piece").agg(
        F.min_by("commit", "position").alias("newest"),
        F.max_by("commit", "position").alias("until"),
    )
    states = commits.where("oldest").selectExpr(
        "commit AS newest", "CAST(NULL AS STRING) AS until", "true AS live"
    )
    return ranges.select("newest", "until", "live").unionByName(states)


def _walk(origin: Origin, whole: bool, roots: Rows) -> Iterator[WalkedCommit]:
    with origin.open() as catalog:
        walker = Walker(catalog, whole)
        for root in roots:
            yield from walker.walk(root)


class WalkedCommit(NamedTuple):
    """A row of `_COMMITS`."""

    root: str
    position: int
    commit: str
    live: bool
    oldest: bool = False


class Walker:
    """Walks down histories, and stops at a commit from which an earlier walk has found as much."""

    def __init__(self, catalog: Catalog, whole: bool) -> None:
        self._catalog = catalog
        self._whole = whole
        self._live_since: dict[str, int] = {}  # The earliest cut-off by which a commit was live.
        self._met: set[str] = set()

    def walk(self, root: Any) -> Iterator[WalkedCommit]:
        """The commits of a root, newest first. One is the oldest live one if the next is not live,
        so each is yielded when the next one is known."""
        name, most, since = root["root"], root["commits"], root["since_nanos"]
        live: bool = root["live"]
        newer: WalkedCommit | None = None
        for position, entry in enumerate(self._log(root)):
            hash, time = entry.meta.hash or "", entry.meta.commit_time
            if live and position > 0:
                live = _is_live(position, time, most, since)
            if newer is not None:
                yield newer._replace(oldest=newer.live and not live)
            if hash == root["until"] or not (live or self._whole):
                return
            if self._is_known(hash, live, most, since):
                return
            newer = WalkedCommit(name, position, hash, live)
        if newer is not None:
            yield newer

    def _log(self, root: Any) -> Iterable[LogEntry]:
        try:
            yield from self._catalog.history.log(RefSpec(None, root["hash"]))
        except ReferenceNotFound:
            if root["live"]:
                raise
            # The catalog may have removed the commits of a dropped reference.

    def _is_known(self, hash: str, live: bool, most: int | None, since: int | None) -> bool:
        known = hash in self._met
        self._met.add(hash)
        if not live:
            return known
        if most is not None:  # An earlier walk may have reached its count sooner.
            return False
        mine = _FOREVER if since is None else since
        known = self._live_since.get(hash, mine + 1) <= mine
        if not known:
            self._live_since[hash] = mine
        return known


def _is_live(position: int, time: str | None, most: int | None, since: int | None) -> bool:
    if most is not None:
        return position < most
    if since is None or time is None:  # A commit without a time is not old.
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

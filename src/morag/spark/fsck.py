"""Checks a whole store on Spark: every row, every pointer, every index against its parent's.

The checks are those of `morag admin check` (`logic/whole_check.py`). Executors scan the rows by
slices, then compare commits along lines of history. Ids and pointers stay in Spark, which joins
them. The driver gets the commits as a graph, in a temporary file.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from struct import Struct as Format
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's documentation calls it F.

from morag.backend.base import Slice
from morag.backend.urls import StoreUrl
from morag.config import Settings
from morag.format.ids import ID_BYTES
from morag.format.records import ObjId
from morag.logic.commit_graph import CommitGraph, GraphCommit
from morag.logic.findings import Finding, kind_name
from morag.logic.line_check import LineToCheck, check_line
from morag.logic.pointer_checks import Pointer
from morag.logic.reference_check import ReferenceCheck
from morag.logic.store_check import examined
from morag.logic.whole_check import Totals, confirmed, lines_to_check
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from morag.spark.errors import CannotRun
from morag.spark.executors import frame_of_items, map_partitions, task_count, union
from morag.spark.opening import opened_backend
from morag.spark.pointer_join import BUCKETS, PACKED, POINTERS, PRESENT, Buckets, wrong_pointers
from morag.spark.progress import watched
from morag.versions.maintenance.checking import CACHE_BYTES, check_not_empty
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import Row, SparkSession

    from morag.backend.base import Backend
    from morag.spark.opening import Origin
    from morag.spark.progress import ProgressCallback

_Packed: TypeAlias = tuple[str, int | None, bytes]
_Columns: TypeAlias = tuple[str | None, ...]

COLUMNS: Final = "id string, kind string, problem string, role string, needed_by string"

# What the packed rows of the executors hold, beside objects and pointers.
_COMMITS: Final = "commits"
_NAMES: Final = "names"
_FINDING: Final = "finding"
_TOTALS: Final = "totals"

_COMMIT: Final = Format(f"={ID_BYTES}s{ID_BYTES}sqI")
_ROWS_AT_ONCE: Final = 5000
_ITEMS_AT_ONCE: Final = 100_000
_OBJECTS_IN_A_TASK: Final = 200_000
_COMMITS_IN_A_LINE: Final = 1000
_TASKS_PER_CORE: Final = 4
"""Few: each task begins with an empty cache."""


class Checked(Struct, frozen=True):
    """`findings` is cached; its columns are `COLUMNS`."""

    findings: DataFrame
    totals: Totals


def fsck(
    spark: SparkSession, origin: Origin, *, progress: ProgressCallback | None = None
) -> DataFrame:
    """Everything that is wrong in the store, a row per finding; no rows if the store is intact.

    Nothing is written, and servers may go on.
    """
    return check(spark, origin, progress=progress).findings


def check(
    spark: SparkSession, origin: Origin, *, progress: ProgressCallback | None = None
) -> Checked:
    """Like `fsck`, with the numbers of what was checked."""
    if origin.store is None:
        raise CannotRun("A check reads the rows of a store, which a server does not expose")
    totals = Totals(Counter())
    with _opened(origin) as (backend, persist), CommitGraph() as graph:
        check_not_empty(backend, persist.settings)
        references = ReferenceCheck(persist)  # First, so that the scan finds what they lead to.
        totals.references = references.count
        with watched(spark, "scan", progress):
            scanned = _kept(_scan(spark, origin))
            _collect(scanned, graph, references, totals)
        lines = list(lines_to_check(persist, graph, references.heads, _COMMITS_IN_A_LINE))
        for line in lines:
            totals.commits += line.count
            totals.reachable += line.reachable
    with watched(spark, "history", progress):
        compared = _kept(_compare(spark, origin, lines))
    with watched(spark, "pointers", progress):
        findings = _kept(_findings(spark, origin, scanned, compared, references, totals))
    scanned.unpersist()
    compared.unpersist()
    return Checked(findings, totals)


# Rows


def _scan(spark: SparkSession, origin: Origin) -> DataFrame:
    count = task_count(spark)
    parts = [(index, count) for index in range(count)]
    return frame_of_items(spark, parts, partial(_scan_parts, origin), count, PACKED)


def _scan_parts(origin: Origin, parts: Iterable[tuple[int, int]]) -> Iterator[_Packed]:
    present, counts = Buckets(PRESENT), Counter[str]()
    with _opened(origin) as (backend, persist):
        for part in parts:
            rows = backend.scan_rows(persist.settings.repository_id, part=Slice(*part))
            while some := list(islice(rows, _ROWS_AT_ONCE)):
                all = [examined(row) for row in some]
                counts.update([kind_name(row.kind) for row in some])
                for each in all:
                    if each.present is not None:
                        present.add(each.present.packed())
                yield from present.emptied(unless_below=_ITEMS_AT_ONCE)
                commits = b"".join([_packed(e.commit) for e in all if e.commit is not None])
                names = "\0".join([e.reference for e in all if e.reference]).encode()
                if commits:
                    yield _COMMITS, None, commits
                if names:
                    yield _NAMES, None, names
                for each in all:
                    if each.finding is not None:
                        yield _finding_row(each.finding)
    yield from present.emptied()
    yield _TOTALS, None, msgspec.msgpack.encode(counts)


def _packed(commit: GraphCommit) -> bytes:
    merged = commit.merge_parents
    head = _COMMIT.pack(commit.id, commit.parent, commit.seq, len(merged))
    return b"".join((head, *merged)) if merged else head


def _unpacked(data: bytes) -> Iterator[GraphCommit]:
    at = 0
    while at < len(data):
        id, parent, seq, merged = _COMMIT.unpack_from(data, at)
        at += _COMMIT.size
        ids = range(at, at + merged * ID_BYTES, ID_BYTES)
        merge_parents = tuple([ObjId(data[start : start + ID_BYTES]) for start in ids])
        at += merged * ID_BYTES
        yield GraphCommit(ObjId(id), ObjId(parent), seq, merge_parents)


def _collect(
    scanned: DataFrame, graph: CommitGraph, references: ReferenceCheck, totals: Totals
) -> None:
    """Put the commits into the graph, a part at a time, so that the driver's memory stays flat."""
    wanted = scanned.where(F.col("what").isin(_COMMITS, _NAMES, _TOTALS))
    for what, _, data in wanted.toLocalIterator(prefetchPartitions=True):
        if what == _COMMITS:
            graph.add(_unpacked(bytes(data)))
        elif what == _NAMES:
            references.add_unnamed(bytes(data).decode().split("\0"))
        else:
            totals.objects.update(msgspec.msgpack.decode(bytes(data), type=dict[str, int]))


# Lines of history


def _compare(spark: SparkSession, origin: Origin, lines: list[LineToCheck]) -> DataFrame:
    items = [(line.newest, line.count, line.reachable) for line in lines]
    tasks = min(len(items), spark.sparkContext.defaultParallelism * _TASKS_PER_CORE) or 1
    return frame_of_items(spark, items, partial(_check_lines, origin), tasks, PACKED)


def _check_lines(origin: Origin, lines: Iterable[tuple[bytes, int, int]]) -> Iterator[_Packed]:
    pointers = Buckets(POINTERS)
    with _opened(origin) as (_, persist):
        for newest, count, reachable in lines:
            for found in check_line(persist, LineToCheck(ObjId(newest), count, reachable)):
                if isinstance(found, Pointer):
                    pointers.add(found.packed())
                else:
                    yield _finding_row(found)
            yield from pointers.emptied(unless_below=_ITEMS_AT_ONCE)
    yield from pointers.emptied()


# Findings


def _findings(
    spark: SparkSession,
    origin: Origin,
    scanned: DataFrame,
    compared: DataFrame,
    references: ReferenceCheck,
    totals: Totals,
) -> DataFrame:
    heads = Buckets(POINTERS)
    for pointer in references.pointers:
        heads.add(pointer.packed())
    named = [_finding_row(finding) for finding in references.findings]
    if named and _are_names_damaged(union([scanned, compared]), references):
        named = []
    known = spark.createDataFrame([*heads.emptied(), *named], PACKED)
    tasks = sum(totals.objects.values()) // _OBJECTS_IN_A_TASK
    tasks = max(task_count(spark), min(BUCKETS, tasks))
    by_bucket = (
        union([scanned, compared, known])
        .where(F.col("bucket").isNotNull())
        .repartition(tasks, "bucket")
    )
    return map_partitions(by_bucket, partial(_judge, origin), COLUMNS)


def _are_names_damaged(found: DataFrame, references: ReferenceCheck) -> bool:
    """Whether the commit with all names is damaged: then references seem to be missing."""
    id = references.names_commit
    rows = found.where(F.col("what") == _FINDING).select("data")
    return any(_decoded(row.data).id == id for row in rows.toLocalIterator())


def _judge(origin: Origin, rows: Iterable[Row]) -> Iterator[_Columns]:
    """The findings among the rows, and those about their pointers."""
    findings: list[bytes] = []

    def others() -> Iterator[Row]:
        for row in rows:
            if row.what == _FINDING:
                findings.append(row.data)
            else:
                yield row

    wrong = wrong_pointers(others())
    return _confirmed(origin, chain(wrong, (_decoded(data) for data in findings)))


def _confirmed(origin: Origin, findings: Iterator[Finding]) -> Iterator[_Columns]:
    """The findings that are still true. The store is opened only if there are any."""
    first = next(findings, None)
    if first is None:
        return
    with _opened(origin) as (_, persist):
        for finding in chain([first], findings):
            for each in confirmed(persist, finding):
                yield _columns(each)


def _columns(finding: Finding) -> _Columns:
    texts = finding.id.hex(), finding.kind, finding.problem, finding.role, finding.needed_by
    return tuple(text or None for text in texts)


def _finding_row(finding: Finding) -> _Packed:
    """In a bucket, only so that the rows of many findings are spread over tasks."""
    return _FINDING, finding.id[0] if finding.id else 0, msgspec.msgpack.encode(finding)


def _decoded(data: bytes) -> Finding:
    return msgspec.msgpack.decode(bytes(data), type=Finding)


def _kept(frame: DataFrame) -> DataFrame:
    """The rows, computed now."""
    frame = frame.persist()
    frame.count()
    return frame


@contextmanager
def _opened(origin: Origin) -> Iterator[tuple[Backend, Persist]]:
    assert origin.store is not None, "`check` refuses other origins"
    settings = StoreUrl.parse(origin.store).settings(Settings(repository_id=origin.repository_id))
    with opened_backend(origin) as backend:
        yield backend, Persist(backend, ObjectCache(CACHE_BYTES), settings, World().clock_nanos)

"""Expand: the files that live contents need, from metadata files down to data files."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - PySpark's documentation calls it F.

from morag.spark import iceberg_metadata
from morag.spark.errors import CannotRun
from morag.spark.executors import map_rows, union
from morag.spark.gc.steps import ICEBERG_TYPES, Role
from morag.spark.locations import caching_spellings, listing_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from morag.spark.executors import Rows
    from morag.spark.files import Files
    from morag.spark.gc.plan import Snapshots
    from morag.spark.gc.run import Run
    from morag.spark.gc.steps import MarkSteps
    from morag.spark.iceberg_metadata import Kind

_METADATA_DIRECTORIES: Final = frozenset({"metadata", "_delta_log"})


def expand(
    run: Run, contents: DataFrame, files: Files, mark: MarkSteps, *, fresh: bool = False
) -> DataFrame:
    """Everything that `contents` need, in three recorded steps, which are repeated if `fresh`.

    Snapshots share manifest lists, manifests and data files. Each is read once.
    """
    make = run.make if fresh else run.once
    schema = mark.metadata.schema

    def expand_contents() -> DataFrame:
        return map_rows(contents, partial(read_contents, files), schema)

    def expand_manifest_lists() -> DataFrame:
        lists = _paths(run.read(mark.metadata), "manifest-list")
        return map_rows(lists, partial(_read_manifest_lists, files), schema)

    def expand_manifests() -> DataFrame:
        named = (run.read(mark.metadata), run.read(mark.manifests))
        manifests = union([_paths(frame, "manifest") for frame in named]).distinct()
        return map_rows(manifests, partial(_read_manifests, files), schema)

    return union(
        [
            make(mark.metadata, expand_contents),
            make(mark.manifests, expand_manifest_lists),
            make(mark.data, expand_manifests),
        ]
    )


def live_metadata(contents: DataFrame, snapshots: Snapshots) -> DataFrame:
    """The metadata files of live contents, and their live snapshot, or null if all are live."""
    wanted = F.col("snapshot_id") if snapshots == "current" else F.lit(None).cast("bigint")
    live = contents.where("live")
    return live.select("content_id", "type", "location", wanted.alias("snapshot_id")).distinct()


def directory_around(metadata_location: str) -> str:
    """The directory above the one for metadata. Other contents may have files there, too."""
    directory = metadata_location.rpartition("/")[0]
    above, _, last = directory.rpartition("/")
    return (above if last in _METADATA_DIRECTORIES else directory) or "/"


def _paths(found: DataFrame, kind: Kind) -> DataFrame:
    wanted = found.where((F.col("role") == Role.FILE) & (F.col("kind") == kind))
    return wanted.select("path", "content_id").distinct()


# The functions below run on the executors, once per task.


def read_contents(files: Files, rows: Rows) -> Iterator[tuple[Any, ...]]:
    reader = _Reader(files)
    for row in rows:
        location, id = row["location"], row["content_id"]
        yield from reader.file_rows("metadata", location, None)
        if row["type"] in ICEBERG_TYPES:
            read = partial(reader.metadata, location, row["snapshot_id"], id)
        else:
            read = partial(reader.kept_rows, directory_around(location))
        yield from reader.guarded(location, id, read)


def _read_manifest_lists(files: Files, rows: Rows) -> Iterator[tuple[Any, ...]]:
    reader = _Reader(files)
    for row in rows:
        path, id = row["path"], row["content_id"]
        yield from reader.guarded(path, id, partial(reader.manifest_list, path, id))


def _read_manifests(files: Files, rows: Rows) -> Iterator[tuple[Any, ...]]:
    reader = _Reader(files)
    for row in rows:
        path, id = row["path"], row["content_id"]
        yield from reader.guarded(path, id, partial(reader.manifest, path))


class _Reader:
    """Reads metadata in one task, and makes rows of the files that it names."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known_spellings = caching_spellings()

    def metadata(self, location: str, wanted: int | None, id: str) -> Iterator[tuple[Any, ...]]:
        outline = iceberg_metadata.read_outline(self._files, location)
        yield _row(Role.DIRECTORY, outline.location, content_id=id)
        for kind, path in outline.files():
            yield from self.file_rows(kind, path, None)
        snapshots = outline.snapshots or ()
        chosen = [each for each in snapshots if wanted in (None, each.snapshot_id)]
        if not chosen and wanted is not None and wanted >= 0:
            chosen = list(snapshots)  # The metadata lacks the catalog's snapshot: keep all.
        for snapshot in chosen:
            if snapshot.manifest_list is not None:
                yield from self.file_rows("manifest-list", snapshot.manifest_list, id)
            for manifest in snapshot.manifests:
                yield from self.file_rows("manifest", manifest, id)

    def manifest_list(self, location: str, id: str) -> Iterator[tuple[Any, ...]]:
        for path in iceberg_metadata.read_manifest_list(self._files, location):
            yield from self.file_rows("manifest", path, id)

    def manifest(self, location: str) -> Iterator[tuple[Any, ...]]:
        for kind, path in iceberg_metadata.read_manifest(self._files, location):
            yield from self.file_rows(kind, path, None)

    def file_rows(self, kind: Kind, path: str, id: str | None) -> Iterator[tuple[Any, ...]]:
        for spelling in self._spellings(path) or [None]:
            yield _row(Role.FILE, path, kind=kind, spelling=spelling, content_id=id)

    def kept_rows(self, directory: str, detail: str | None = None) -> Iterator[tuple[Any, ...]]:
        for spelling in self._spellings(directory):
            yield _row(Role.KEPT, directory, spelling=listing_prefix(spelling), detail=detail)

    def guarded(
        self, path: str, id: str, read: Callable[[], Iterable[tuple[Any, ...]]]
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of `read`, or a row with the problem: one bad file must not stop the others."""
        if not self._spellings(path):
            detail = "jobs handle disks and S3 only"
            yield _row(Role.ELSEWHERE, path, detail=detail, content_id=id)
            return
        try:
            yield from read()
        except FileNotFoundError as error:
            yield _row(Role.MISSING, path, detail=str(error), content_id=id)
            yield from self.kept_rows(directory_around(path), f"'{path}' is missing")
        except (CannotRun, OSError) as error:
            yield _row(Role.UNREADABLE, path, detail=str(error), content_id=id)

    def _spellings(self, location: str) -> set[str]:
        try:
            return self._known_spellings(location)
        except CannotRun:
            return set()  # It is on a store where jobs neither list nor remove files.


def _row(
    role: Role,
    path: str,
    *,
    kind: Kind | None = None,
    spelling: str | None = None,
    detail: str | None = None,
    content_id: str | None = None,
) -> tuple[Any, ...]:
    # Spark pickles the row for Java, which cannot read an enum.
    return role.value, kind, path, spelling, detail, content_id

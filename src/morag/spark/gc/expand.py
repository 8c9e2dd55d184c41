"""Expand: which files live contents need, from the metadata down to the data."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

from morag.spark import lake
from morag.spark.errors import CannotRun
from morag.spark.gc.guesses import surroundings
from morag.spark.gc.records import EXPANDED, union
from morag.spark.places import listed_as, spellings
from morag.spark.spread import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from morag.spark.files import Files
    from morag.spark.gc.plan import Snapshots
    from morag.spark.gc.records import Run
    from morag.spark.lake import Kind
    from morag.spark.spread import Rows

# `role`: FILE; DIRECTORY, where a table is; KEPT, a directory of which everything stays; or, of a
#     file that could not be read: MISSING, UNREADABLE, ELSEWHERE if it is on a store of a kind that
#     jobs do not know.
# `path`: As it is written in the metadata.
# `spelling`: As a listing may call it; a file may have several rows, and none if it is elsewhere.
# `content_id`: Whose it is, unless it is a file that is not read.
FOUND: Final = (
    "role STRING, kind STRING, path STRING, spelling STRING, detail STRING, content_id STRING"
)
_ICEBERG: Final = ("ICEBERG_TABLE", "ICEBERG_VIEW")


def expand(
    run: Run, contents: DataFrame, files: Files, prefix: str, *, anew: bool = False
) -> DataFrame:
    """Everything that is needed by `contents`, in three recorded steps.

    Snapshots share manifest lists, manifests and data files. Each is read once.
    """
    steps = [
        partial(_expand_contents, contents, files),
        partial(_expand_lists, run, files, prefix),
        partial(_expand_manifests, run, files, prefix),
    ]
    make = run.make if anew else run.once
    return union([make(f"{prefix}-{part}", s) for part, s in zip(EXPANDED, steps, strict=True)])


def live_metadata(contents: DataFrame, snapshots: Snapshots) -> DataFrame:
    """The metadata files of live contents, and which of their snapshots are, if not all."""
    wanted = F.col("snapshot_id") if snapshots == "current" else F.lit(None).cast("bigint")
    live = contents.where("live")
    return live.select("content_id", "type", "location", wanted.alias("snapshot_id")).distinct()


def _expand_contents(contents: DataFrame, files: Files) -> DataFrame:
    return spread(contents, partial(_read_contents, files), FOUND)


def _expand_lists(run: Run, files: Files, prefix: str) -> DataFrame:
    lists = _paths(run.read(f"{prefix}-metadata"), "manifest-list")
    return spread(lists, partial(_read_paths, partial(_manifests, files)), FOUND)


def _expand_manifests(run: Run, files: Files, prefix: str) -> DataFrame:
    named = (run.read(f"{prefix}-{part}") for part in ("metadata", "manifests"))
    manifests = union([_paths(frame, "manifest") for frame in named]).distinct()
    return spread(manifests, partial(_read_paths, partial(_data_files, files)), FOUND)


def _paths(found: DataFrame, kind: Kind) -> DataFrame:
    wanted = found.where(f"role = 'FILE' AND kind = '{kind}'")
    return wanted.select("path", "content_id").distinct()


def _read_contents(files: Files, contents: Rows) -> Iterator[tuple[Any, ...]]:
    for content in contents:
        location, id = content["location"], content["content_id"]
        yield from _file_rows("metadata", location, None)
        if content["type"] in _ICEBERG:
            read = partial(_outline, files, location, content["snapshot_id"], id)
        else:
            read = partial(_kept_rows, surroundings(location))
        yield from _guarded(location, id, read)


def _outline(files: Files, location: str, wanted: int | None, id: str) -> Iterator[tuple[Any, ...]]:
    outline = lake.outline(files, location)
    yield "DIRECTORY", None, outline.location, None, None, id
    for kind, path in outline.files():
        yield from _file_rows(kind, path, None)
    snapshots = outline.snapshots or ()
    chosen = [each for each in snapshots if wanted in (None, each.snapshot_id)]
    if not chosen and wanted is not None and wanted >= 0:
        chosen = list(snapshots)  # The catalog names one that the metadata has lost: keep all.
    for snapshot in chosen:
        if snapshot.manifest_list is not None:
            yield from _file_rows("manifest-list", snapshot.manifest_list, id)
        for manifest in snapshot.manifests:
            yield from _file_rows("manifest", manifest, id)


def _read_paths(
    read: Callable[[str, str], Iterable[tuple[Any, ...]]], rows: Rows
) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        path, id = row["path"], row["content_id"]
        yield from _guarded(path, id, partial(read, path, id))


def _manifests(files: Files, manifest_list: str, id: str) -> Iterator[tuple[Any, ...]]:
    for path in lake.manifests(files, manifest_list):
        yield from _file_rows("manifest", path, id)


def _data_files(files: Files, manifest: str, id: str) -> Iterator[tuple[Any, ...]]:
    for kind, path in lake.data_files(files, manifest):
        yield from _file_rows(kind, path, None)


def _file_rows(kind: Kind, path: str, id: str | None) -> Iterator[tuple[Any, ...]]:
    for spelling in _spellings(path) or [None]:
        yield "FILE", kind, path, spelling, None, id


def _kept_rows(directory: str) -> Iterator[tuple[Any, ...]]:
    for spelling in _spellings(directory):
        yield "KEPT", None, directory, listed_as(spelling), None, None


def _spellings(location: str) -> set[str]:
    try:
        return spellings(location)
    except CannotRun:
        return set()  # On a store that is not listed, and so cannot lose it.


def _guarded(
    path: str, id: str, read: Callable[[], Iterable[tuple[Any, ...]]]
) -> Iterator[tuple[Any, ...]]:
    """What was read, or a row that says why not: one bad file must not hide the others."""
    if not _spellings(path):
        yield "ELSEWHERE", None, path, None, "jobs handle disks and S3 only", id
        return
    try:
        yield from read()
    except FileNotFoundError as error:
        yield "MISSING", None, path, None, str(error), id
        yield from _kept_rows(surroundings(path))
    except (CannotRun, OSError) as error:
        yield "UNREADABLE", None, path, None, str(error), id

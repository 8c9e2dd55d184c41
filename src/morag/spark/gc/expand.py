"""Expand: which files live contents need, from the metadata down to the data."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

from morag.spark import lake
from morag.spark.errors import CannotRun
from morag.spark.files import spellings
from morag.spark.gc.records import union
from morag.spark.spread import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from morag.spark.files import Files
    from morag.spark.gc.plan import Snapshots
    from morag.spark.gc.records import Run
    from morag.spark.lake import Kind
    from morag.spark.spread import Rows

# `role`: FILE, DIRECTORY, MISSING or UNREADABLE.
# `path`: As it is written in the metadata.
# `spelling`: As a listing may call it; a file may have several rows.
FOUND: Final = "role STRING, kind STRING, path STRING, spelling STRING, detail STRING"
PARTS: Final = ("metadata", "manifests", "data")
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
    return union([make(f"{prefix}-{part}", s) for part, s in zip(PARTS, steps, strict=True)])


def live_metadata(contents: DataFrame, snapshots: Snapshots) -> DataFrame:
    """The metadata files of live contents, and which of their snapshots are, if not all."""
    wanted = F.col("snapshot_id") if snapshots == "current" else F.lit(None).cast("bigint")
    live = contents.where("live").select("type", "location", wanted.alias("snapshot_id"))
    return live.distinct()


def _expand_contents(contents: DataFrame, files: Files) -> DataFrame:
    return spread(contents, partial(_read_contents, files), FOUND)


def _expand_lists(run: Run, files: Files, prefix: str) -> DataFrame:
    lists = _paths(run.read(f"{prefix}-metadata"), "manifest-list")
    return spread(lists, partial(_read_paths, partial(_manifests, files)), FOUND)


def _expand_manifests(run: Run, files: Files, prefix: str) -> DataFrame:
    named = (run.read(f"{prefix}-{part}") for part in ("metadata", "manifests"))
    manifests = union([_paths(frame, "manifest") for frame in named]).distinct()
    return spread(manifests, partial(_read_paths, partial(lake.data_files, files)), FOUND)


def _paths(found: DataFrame, kind: Kind) -> DataFrame:
    return found.where(f"role = 'FILE' AND kind = '{kind}'").select("path").distinct()


def _read_contents(files: Files, contents: Rows) -> Iterator[tuple[Any, ...]]:
    for content in contents:
        location, wanted = content["location"], content["snapshot_id"]
        yield from _file_rows("metadata", location)
        if content["type"] in _ICEBERG:
            yield from _guarded(location, partial(_outline, files, location, wanted))


def _outline(files: Files, location: str, wanted: int | None) -> Iterator[tuple[Any, ...]]:
    outline = lake.outline(files, location)
    yield "DIRECTORY", None, outline.location, None, None
    for kind, path in outline.files():
        yield from _file_rows(kind, path)
    snapshots = outline.snapshots or ()
    chosen = [each for each in snapshots if wanted in (None, each.snapshot_id)]
    if not chosen and wanted is not None and wanted >= 0:
        chosen = list(snapshots)  # The catalog names one that the metadata has lost: keep all.
    for snapshot in chosen:
        if snapshot.manifest_list is not None:
            yield from _file_rows("manifest-list", snapshot.manifest_list)
        for manifest in snapshot.manifests:
            yield from _file_rows("manifest", manifest)


def _manifests(files: Files, manifest_list: str) -> Iterator[tuple[Kind, str]]:
    for path in lake.manifests(files, manifest_list):
        yield "manifest", path


def _read_paths(
    read: Callable[[str], Iterable[tuple[Kind, str]]], rows: Rows
) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        yield from _guarded(row["path"], partial(_named_files, read, row["path"]))


def _named_files(
    read: Callable[[str], Iterable[tuple[Kind, str]]], path: str
) -> Iterator[tuple[Any, ...]]:
    for kind, named in read(path):
        yield from _file_rows(kind, named)


def _file_rows(kind: Kind, path: str) -> Iterator[tuple[Any, ...]]:
    for spelling in spellings(path):
        yield "FILE", kind, path, spelling, None


def _guarded(path: str, read: Callable[[], Iterator[tuple[Any, ...]]]) -> Iterator[tuple[Any, ...]]:
    """What was read, or a row that says why not: one bad file must not hide the others."""
    try:
        yield from read()
    except FileNotFoundError as error:
        yield "MISSING", None, path, None, str(error)
    except (CannotRun, OSError) as error:
        yield "UNREADABLE", None, path, None, str(error)

"""Quarantine: move single files there, move them back, or delete them. This runs on the executors.

Spark may run a task twice, also at the same time, and an earlier attempt may have stopped anywhere.
So each function first looks where the file is.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from morag.spark.errors import CannotRun
from morag.spark.files import Files, remove_partial_copies
from morag.spark.gc.plan import QUARANTINE, Plan
from morag.spark.gc.steps import Outcome
from morag.spark.locations import Location, spellings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from morag.spark.executors import Rows

Action: TypeAlias = Literal["quarantine", "delete"]
_Result: TypeAlias = tuple[Outcome, str]


class FilesBeforeSweep(Files, frozen=True, kw_only=True):
    """Files of a lake; those in the quarantine of the plan can be read under their old names."""

    plan: Plan

    def read(self, location: str) -> bytes:
        try:
            return super().read(location)
        except FileNotFoundError:
            for spelling in spellings(location):
                with suppress(FileNotFoundError):
                    return super().read(self.plan.quarantined(spelling))
            raise


def assign_quarantine(plan: Plan, rows: Rows) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        path = row["path"]
        yield path, row["size_bytes"], row["modified_micros"], plan.quarantined(path)


def remove(
    files: Files, action: Action, newest_micros: int, rows: Rows
) -> Iterator[tuple[Any, ...]]:
    """Remove the files that are older than `newest_micros`. Others were rewritten or moved here
    after they were listed."""

    def removed(path: str, quarantined: str) -> _Result:
        found = files.find(path)
        if found is None and files.find(quarantined) is not None:
            return Outcome.QUARANTINED, ""
        if found is None and not _has_directory(path):
            return Outcome.FAILED, "its directory is missing as well: is the lake mounted?"
        if found is None:
            return Outcome.GONE, ""
        if found.modified_micros is None or found.modified_micros >= newest_micros:
            return Outcome.CHANGED, "it was rewritten or moved here since the run started"
        if action == "delete":
            files.delete(path)
            return Outcome.DELETED, ""
        files.move(path, quarantined)
        return Outcome.QUARANTINED, ""

    return _each(rows, removed)


def restore(files: Files, rows: Rows) -> Iterator[tuple[Any, ...]]:
    def restored(path: str, quarantined: str) -> _Result:
        if files.find(quarantined) is None:
            if files.find(path) is not None:
                return Outcome.IN_PLACE, ""
            return Outcome.LOST, "it is not in quarantine either"
        files.move(quarantined, path)
        _remove_empty_directories(quarantined)
        return Outcome.RESTORED, ""

    return _each(rows, restored)


def purge(files: Files, rows: Rows) -> Iterator[tuple[Any, ...]]:
    directories: set[str] = set()

    def purged(path: str, quarantined: str) -> _Result:
        directories.add(quarantined.rpartition("/")[0])
        if files.find(quarantined) is None:
            return Outcome.GONE, ""
        files.delete(quarantined)
        _remove_empty_directories(quarantined)
        return Outcome.PURGED, ""

    yield from _each(rows, purged)
    for location in map(Location.of, directories):
        if location.is_local:
            with suppress(OSError):  # Partial copies do no harm, and the files are deleted.
                remove_partial_copies(Path(location.path))
            _remove_empty_directories(f"{location}/any")


def _each(rows: Rows, work: Callable[[str, str], _Result]) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        outcome, detail = _attempt(partial(work, row["path"], row["quarantined"]))
        # Spark pickles the row for Java, which cannot read an enum.
        yield row["path"], row["size_bytes"], outcome.value, detail


def _attempt(work: Callable[[], _Result]) -> _Result:
    try:
        try:
            return work()
        except FileNotFoundError:  # Another task moved it first: look again.
            return work()
    except (OSError, CannotRun) as error:
        return Outcome.FAILED, str(error)


def _has_directory(path: str) -> bool:
    """Whether a missing file was removed, rather than its disk not mounted. On S3 a store that
    cannot be reached raises an error."""
    location = Location.of(path)
    return not location.is_local or Path(location.path).parent.is_dir()


def _remove_empty_directories(quarantined: str) -> None:
    """Remove the directories of the quarantine that are empty now. On S3 there are none."""
    location = Location.of(quarantined)
    if location.is_local:
        with suppress(OSError):  # The directory is not empty.
            for directory in Path(location.path).parents:
                directory.rmdir()
                if directory.name == QUARANTINE:
                    return

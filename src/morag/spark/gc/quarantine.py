"""Quarantine: single files on their way there, back, or to their end. This runs on the executors.

Tasks may run twice, also at the same time, and an earlier try may have been stopped anywhere. So
each step first looks how far a file has come.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from morag.spark.errors import CannotRun
from morag.spark.files import Files
from morag.spark.gc.plan import QUARANTINE, Plan
from morag.spark.moving import remove_halves
from morag.spark.places import Place, spellings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from morag.spark.spread import Rows

Action: TypeAlias = Literal["quarantine", "delete"]
Outcome: TypeAlias = tuple[str, str]

DOOMED: Final = "path STRING, size_bytes BIGINT, modified_micros BIGINT, quarantined STRING"
OUTCOMES: Final = "path STRING, size_bytes BIGINT, outcome STRING, detail STRING"


class Behind(Files, frozen=True, kw_only=True):
    """Files as they were before the sweep: what is in quarantine can be read under its old name."""

    plan: Plan

    def read(self, location: str) -> bytes:
        try:
            return super().read(location)
        except FileNotFoundError:
            for spelling in spellings(location):
                with suppress(FileNotFoundError):
                    return super().read(self.plan.quarantined(spelling))
            raise


def doom(plan: Plan, rows: Rows) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        path = row["path"]
        yield path, row["size_bytes"], row["modified_micros"], plan.quarantined(path)


def remove(files: Files, action: Action, newest: int, rows: Rows) -> Iterator[tuple[Any, ...]]:
    """Those that are older than `newest` go: others were written anew since they were found, or
    came from elsewhere."""

    def removed(path: str, quarantined: str) -> Outcome:
        found = files.find(path)
        if found is None and files.find(quarantined) is not None:
            return "QUARANTINED", ""
        if found is None and not _is_in_reach(path):
            return "FAILED", "its directory is not there either: is the lake where it was?"
        if found is None:
            return "GONE", ""
        if found.modified_micros is None or found.modified_micros >= newest:
            return "CHANGED", "somebody has written it anew or brought it here"
        if action == "delete":
            files.delete(path)
            return "DELETED", ""
        files.move(path, quarantined)
        return "QUARANTINED", ""

    return _each(rows, removed)


def restore(files: Files, rows: Rows) -> Iterator[tuple[Any, ...]]:
    def restored(path: str, quarantined: str) -> Outcome:
        if files.find(quarantined) is None:
            there = files.find(path) is not None
            return ("IN PLACE", "") if there else ("LOST", "it is not in quarantine either")
        files.move(quarantined, path)
        _tidy(quarantined)
        return "RESTORED", ""

    return _each(rows, restored)


def purge(files: Files, rows: Rows) -> Iterator[tuple[Any, ...]]:
    directories: set[str] = set()

    def purged(path: str, quarantined: str) -> Outcome:
        directories.add(quarantined.rpartition("/")[0])
        if files.find(quarantined) is None:
            return "GONE", ""
        files.delete(quarantined)
        _tidy(quarantined)
        return "PURGED", ""

    yield from _each(rows, purged)
    for place in map(Place.of, directories):
        if place.is_local:
            with suppress(OSError):  # It does no harm, and the files themselves are gone.
                remove_halves(Path(place.path))
            _tidy(f"{place}/half")


def _each(rows: Rows, work: Callable[[str, str], Outcome]) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        outcome = _outcome(partial(work, row["path"], row["quarantined"]))
        yield row["path"], row["size_bytes"], *outcome


def _outcome(work: Callable[[], Outcome]) -> Outcome:
    try:
        try:
            return work()
        except FileNotFoundError:  # Another task was quicker: see how far it has come.
            return work()
    except (OSError, CannotRun) as error:
        return "FAILED", str(error)


def _is_in_reach(path: str) -> bool:
    """Whether a file that is not there was removed: a disk may not be mounted. On S3 that shows by
    an error."""
    place = Place.of(path)
    return not place.is_local or Path(place.path).parent.is_dir()


def _tidy(quarantined: str) -> None:
    """Remove the directories of the quarantine that are empty now. On S3 there are none."""
    place = Place.of(quarantined)
    if place.is_local:
        with suppress(OSError):  # There is more in it.
            for directory in Path(place.path).parents:
                directory.rmdir()
                if directory.name == QUARANTINE:
                    return

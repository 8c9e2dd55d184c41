"""The records of a run: its plan, its lock, and which steps were made. No rows, so no Spark.

RUNS/<id>/plan.json
RUNS/<id>/<step>/*.parquet
RUNS/<id>/<step>.json       the record, written last: a step without it is made again
RUNS/<id>/<step>.begun      written before a step whose start alone matters
RUNS/<id>/busy              the lock of a running job
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from morag.spark.errors import CannotRun
from morag.spark.gc.plan import Plan

if TYPE_CHECKING:
    from morag.spark.gc.record_files import RecordFiles

PLAN: Final = "plan.json"
LOCK: Final = "busy"


class StepRecord(Struct, frozen=True):
    """The record of a completed step. With the schema Spark need not open the files to plan."""

    name: str
    started: str
    finished: str
    rows: int
    schema: str


class Records:
    """The records of one run. Only `unlock` changes them."""

    def __init__(self, files: RecordFiles, path: str) -> None:
        self._files = files
        self.path = path.rstrip("/")
        plan = files.read(f"{self.path}/{PLAN}")
        if plan is None:
            raise CannotRun(
                f"'{path}' is not a recorded run: it has no {PLAN}; "
                "`morag spark gc list --runs DIR` shows the runs in a directory"
            )
        self.plan = msgspec.json.decode(plan, type=Plan)

    def steps(self) -> list[StepRecord]:
        """The completed steps, in the order in which they started."""
        paths = self._files.list_directory(self.path)
        records = (each for each in paths if each.endswith(".json"))
        texts = (self._files.read(each) for each in records if not each.endswith(f"/{PLAN}"))
        found = [msgspec.json.decode(text, type=StepRecord) for text in texts if text is not None]
        return sorted(found, key=lambda step: step.started)

    def step(self, name: str) -> StepRecord | None:
        text = self._files.read(self.record_path(name))
        return None if text is None else msgspec.json.decode(text, type=StepRecord)

    def record_path(self, name: str) -> str:
        return f"{self.path}/{name}.json"

    def unknown_step(self, name: str) -> CannotRun:
        """The error for a step that was not made."""
        made = ", ".join(each.name for each in self.steps())
        return CannotRun(f"The run '{self.path}' has no step '{name}' yet, but {made or 'none'}")

    def unlock(self) -> None:
        """Remove the lock that a killed job left. The caller knows that no job is running."""
        self._files.remove(f"{self.path}/{LOCK}")


def recorded_paths(files: RecordFiles, directory: str) -> list[str]:
    """The paths of all runs that are recorded below a directory, oldest first."""
    paths = sorted(files.list_directory(directory))
    return [path for path in paths if files.read(f"{path}/{PLAN}") is not None]

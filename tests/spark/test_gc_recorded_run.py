"""A run that version 0.1.0 recorded can be resumed, swept, undone and purged.

`recorded_run.json` holds its plan, and the record and the rows of each of its steps. The table
db.gone was dropped; the first sweep failed for one of its five files, which the second one removed.
Paths of the lake, the id of the run and the head of main are placeholders.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from morag import ContentKey, Namespace, Put
from morag.spark import gc
from morag.spark.gc.steps import REMOVED, UNDONE
from tests.spark.gc_scenario import DAY_NANOS, Scenario, paths, write_file
from tests.spark.reachable_files import path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.timeout(600)  # Spark is slow on busy machines.

_RECORDED: Final = Path(__file__).with_name("recorded_run.json")
_ID: Final = "20261120T161237Z-0a1b2c3d"
_LISTED: Final = (
    "refs",
    "contents",
    "live-metadata",
    "live-manifests",
    "live-data",
    "homes",
    "locations",
    "listed",
)


def test_a_run_that_was_swept_is_read_and_purged(scenario: Scenario) -> None:
    recorded = _recorded(scenario)
    run = _write_run(scenario, recorded, list(recorded["steps"]))
    dead = _paths(recorded, "orphans")
    for row in recorded["steps"]["doomed"]["rows"]:
        write_file(path_of(row[3]))
    assert {step.name for step in run.steps()} == recorded["steps"].keys()
    assert {row.outcome for row in run.read("removed").collect()} == {"QUARANTINED", "FAILED"}
    assert {row.outcome for row in run.removed.collect()} == {"QUARANTINED"}
    assert paths(run.removed) == paths(run.orphans) == dead
    assert [step.name for step in run.attempts(REMOVED).made] == ["removed", "removed-2"]

    scenario.purge(run)
    assert {row.outcome for row in run.read("purged").collect()} == {"PURGED"}
    assert not list(scenario.warehouse.rglob(".morag-quarantine"))


@pytest.mark.long
def test_a_run_that_was_stopped_is_resumed_swept_and_undone(scenario: Scenario) -> None:
    recorded = _recorded(scenario)
    run = _write_run(scenario, recorded, _LISTED)
    for path in _paths(recorded, "listed"):
        write_file(path_of(path))
    before, dead = scenario.files(), _paths(recorded, "orphans")

    gc.resume(scenario.spark, run.path, scenario.origin, dry_run=False)
    for name in ("live-kept", "orphans", "doomed", "removed", "rescued"):
        made = next(step for step in run.steps() if step.name == name)
        assert _columns(made.schema) == _columns(recorded["steps"][name]["record"]["schema"])
    assert paths(run.removed) == before - scenario.files() == dead

    gc.undo(scenario.spark, run.path)
    assert scenario.files() == before
    assert {row.outcome for row in run.attempts(UNDONE).outcomes.collect()} == {"RESTORED"}


def _recorded(scenario: Scenario) -> dict[str, Any]:
    namespace = Namespace(elements=("db",))
    scenario.catalog.commit("main", [Put(ContentKey.of("db"), namespace)], "have a commit")
    text = _RECORDED.read_text()
    for name, value in {
        "{lake}": scenario.warehouse.as_uri(),
        "{top}": str(scenario.warehouse.parent),
        "{id}": _ID,
        "{head}": scenario.catalog.references.get("main").hash,
    }.items():
        text = text.replace(name, value)
    recorded: dict[str, Any] = json.loads(text)
    # The files are written now, and must be older than the grace period.
    recorded["plan"]["now_nanos"] = scenario.world.clock_nanos() + 4 * DAY_NANOS
    return recorded


def _write_run(scenario: Scenario, recorded: dict[str, Any], steps: Sequence[str]) -> gc.Run:
    directory = Path(scenario.records) / _ID
    directory.mkdir(parents=True)
    (directory / "plan.json").write_text(json.dumps(recorded["plan"]))
    for name in steps:
        step = recorded["steps"][name]
        rows = [tuple(row) for row in step["rows"]]
        frame = scenario.spark.createDataFrame(rows, step["record"]["schema"])
        frame.coalesce(1).write.parquet(str(directory / name))
        (directory / f"{name}.json").write_text(json.dumps(step["record"]))
    return gc.Run(scenario.spark, str(directory))


def _paths(recorded: dict[str, Any], step: str) -> set[str]:
    return {row[0] for row in recorded["steps"][step]["rows"]}


def _columns(schema: str) -> list[str]:
    return [column.strip().removesuffix(" NOT NULL") for column in schema.split(",")]

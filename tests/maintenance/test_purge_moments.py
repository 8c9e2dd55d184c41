"""Single moments at which something becomes reachable during a purge, and kills right after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from morag.backend.base import ObjId
from morag.backend.memory import MemoryBackend
from morag.errors import BadRequest, ReferenceNotFound
from morag.format.records import Row
from morag.logic.needed_objects import NeededObjects
from morag.versions.maintenance.journal import Journal, put_back, write_part
from morag.versions.maintenance.purge import Purge
from morag.versions.maintenance.purge_report import PurgeRequest, total
from tests.backend.counting import CountingBackend
from tests.maintenance.interrupted_backend import InterruptedBackend, Killed
from tests.maintenance.purge_scenario import SMALL, Scenario

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from morag.versions.maintenance.purge_report import PurgeReport


@pytest.fixture
def scenario() -> Scenario:
    scenario = Scenario(CountingBackend(MemoryBackend()))
    for branch in ("main", "side"):
        if branch != "main":
            scenario.repo.references.create_branch(branch, "main")
        for n in range(12):
            scenario.put(branch, *(f"{branch}{n}-{k}" for k in range(8)))
    return scenario


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def dropped_during_a_request(scenario: Scenario) -> Callable[[], object]:
    """Drop the branch `side`; a request that found its head before goes on when it is called."""
    scenario.days_pass()
    references = scenario.repo.references
    request = references.creation("BRANCH", "late", "side")
    references.delete("side")
    return lambda: references._run(request)


def leaves_of(row: Row) -> set[ObjId]:
    needs = NeededObjects()
    needs.add(row)
    return needs.leaves


def start(
    scenario: Scenario, journal: Path, before: Callable[[str], None], rows_at_once: int = 1000
) -> Purge:
    backend = InterruptedBackend(scenario.backend, before)
    request = PurgeRequest(dry_run=False, rows_at_once=rows_at_once)
    return Purge(backend, SMALL, scenario.world, request, journal)


def purge_and_do(
    scenario: Scenario, journal: Path, stage: str, do: Callable[[], object]
) -> PurgeReport:
    """Purge, and do something once, at the first step of the stage after rows were deleted."""
    running = start(scenario, journal, lambda _: None)
    is_done = False
    before = len(scenario.rows())
    for step in running.steps():
        if step.stage == stage and not is_done and len(scenario.rows()) < before:
            do()
            is_done = True
    assert is_done
    report = running.report()
    running.close()
    return report


@pytest.mark.parametrize("stage", ["sweep", "settle"])
def test_deleted_objects_that_a_late_request_needs_are_put_back(
    scenario: Scenario, journal: Path, stage: str
) -> None:
    before = scenario.rows()
    late = dropped_during_a_request(scenario)
    report = purge_and_do(scenario, journal, stage, late)
    assert report.put_back > 100
    assert not report.removed_rows
    assert before.items() <= scenario.rows().items(), "the rows have their old times"
    scenario.check()


def test_a_row_that_is_written_again_just_before_its_deletion_stays(
    scenario: Scenario, journal: Path
) -> None:
    lost = ObjId(bytes.fromhex(scenario.repo.references.get("side").hash))
    scenario.repo.references.delete("side")
    scenario.days_pass()
    before = scenario.rows()

    def touch(call: str) -> None:
        if call == "delete_unreferenced" and scenario.rows().keys() == before.keys():
            assert scenario.persist().touch(lost)

    running = start(scenario, journal, touch, rows_at_once=5)
    list(running.steps())
    assert scenario.rows().keys() == before.keys(), "the commit needs everything else"
    assert total(running.report().stays, "referenced") == 1
    assert total(running.report().stays, "needed") > 100


def test_a_young_index_keeps_its_contents(scenario: Scenario, journal: Path) -> None:
    scenario.repo.references.delete("side")
    reachable = scenario.reachable()
    indexes = [row for row in scenario.rows().values() if row.kind == "i"]
    index = next(row for row in indexes if leaves_of(row) - reachable)
    scenario.days_pass()
    scenario.persist().touch(index.id)
    scenario.purge(journal)
    assert scenario.rows().keys() == reachable | {index.id} | leaves_of(index)


def test_a_purge_that_was_killed_after_its_last_deletion_puts_back_what_is_needed(
    scenario: Scenario, journal: Path
) -> None:
    before = scenario.rows()
    late = dropped_during_a_request(scenario)
    is_deleted = False

    def kill(call: str) -> None:
        nonlocal is_deleted
        if is_deleted and call == "read_refs":
            raise Killed
        is_deleted = is_deleted or call == "delete_unreferenced"

    running = start(scenario, journal, kill)
    with pytest.raises(Killed):
        list(running.steps())
    running.close()
    late()
    assert len(scenario.rows()) < len(before)
    report = scenario.purge(journal)
    assert report.put_back > 100
    assert before.items() <= scenario.rows().items()
    scenario.check()
    assert not journal.exists()


def test_a_commit_that_was_purged_is_not_found_although_a_server_has_it_cached(
    scenario: Scenario, journal: Path
) -> None:
    lost = scenario.repo.references.get("side").hash
    scenario.repo.references.delete("side")
    scenario.days_pass()
    assert list(scenario.repo.contents.keys(f"@{lost}")), "its index is cached, too"
    scenario.purge(journal)
    references = scenario.repo.references
    for attempt in (
        lambda: references.create_branch("again", f"@{lost}"),
        lambda: references.assign("main", f"@{lost}"),
        lambda: scenario.repo.merge(f"@{lost}", "main"),
        lambda: scenario.repo.transplant([lost], "main"),
    ):
        with pytest.raises(ReferenceNotFound):
            attempt()
    scenario.check()


class TestJournal:
    def test_parts_of_tasks_are_absorbed(self, journal: Path) -> None:
        rows = [Row(ObjId(bytes([n]) * 32), "v", b"x" * n, None, n) for n in range(1, 5)]
        first = Journal(journal, "repository")
        first.write(rows[:1])
        write_part(journal, "1", rows[1:3])
        write_part(journal, "2", rows[3:])
        first.close()
        again = Journal(journal, "repository")
        again.absorb()
        assert {row.id: row for row in again.find([row.id for row in rows])} == {
            row.id: row for row in rows
        }
        assert list(again.rows("v")) == rows
        again.forget([rows[0].id])
        assert again.find([rows[0].id]) == []
        again.remove()
        assert not journal.exists()

    def test_a_part_of_a_task_that_was_killed_at_its_start_is_empty(self, journal: Path) -> None:
        first = Journal(journal, "repository")
        (journal / "part-1.db").touch()
        first.absorb()
        assert first.is_empty
        first.remove()
        assert not journal.exists()

    def test_a_path_that_cannot_be_a_journal_is_named(self, journal: Path) -> None:
        journal.touch()
        with pytest.raises(BadRequest, match="cannot be used"):
            Journal(journal, "repository")
        journal.unlink()
        journal.mkdir()
        (journal / "journal.db").write_text("not a database")
        with pytest.raises(BadRequest, match="cannot be used"):
            Journal(journal, "repository")

    def test_a_journal_belongs_to_one_repository_and_one_purge(self, journal: Path) -> None:
        first = Journal(journal, "one")
        with pytest.raises(BadRequest, match="Another purge"):
            Journal(journal, "one")
        first.close()
        with pytest.raises(BadRequest, match="another repository"):
            Journal(journal, "two")

    def test_putting_back_changes_no_row_that_is_there(self) -> None:
        backend = MemoryBackend()
        row = Row(ObjId(b"i" * 32), "v", b"data", None, 1000)
        newer = replace(row, referenced_micros=2000)
        backend.insert_rows("r", [newer])
        assert put_back(backend, "r", [row], lambda: 3000) == 0
        assert backend.read_rows("r", [row.id]) == {row.id: newer}
        backend.delete_rows("r", [row.id])
        assert put_back(backend, "r", [row], lambda: 3000) == 1
        assert backend.read_rows("r", [row.id]) == {row.id: row}

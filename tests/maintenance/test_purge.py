"""What a purge removes, what it keeps and why, and when it refuses to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from morag import ContentKey, Delete, TagNote
from morag.backend.base import ObjId, RefSwap
from morag.backend.memory import MemoryBackend
from morag.errors import BadRequest, ReferenceNotFound, RepositoryCorrupt, RepositoryMissing
from morag.format.object_codec import encode
from morag.format.objects import Unique
from morag.model.configs import GarbageCollectorConfig
from morag.testing.backend_contract import a_custom_row
from morag.versions.maintenance.purge import Purge
from morag.versions.maintenance.purge_report import PurgeRequest, total
from tests.backend.counting import CountingBackend
from tests.maintenance.purge_scenario import SMALL, Scenario

if TYPE_CHECKING:
    from pathlib import Path

    from morag.backend.base import Row


@pytest.fixture
def scenario() -> Scenario:
    return Scenario(CountingBackend(MemoryBackend()))  # Unlike memory itself, it can be shared.


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def make_garbage(scenario: Scenario) -> str:
    """Drop a branch with commits, indexes and contents of its own; its last hash."""
    for n in range(12):
        scenario.put("main", *(f"m{n}-{k}" for k in range(8)))
    scenario.repo.references.create_branch("side", "main")
    for n in range(12):
        scenario.put("side", *(f"s{n}-{k}" for k in range(8)))
    lost = scenario.repo.references.get("side").hash
    scenario.repo.references.delete("side")
    return lost


class TestRemoval:
    def test_everything_unreachable_and_old_is_removed(
        self, scenario: Scenario, journal: Path
    ) -> None:
        make_garbage(scenario)
        before, reachable = scenario.rows(), scenario.reachable()
        assert {"c", "i", "I", "v", "u"} <= {before[id].kind for id in before.keys() - reachable}
        scenario.days_pass()
        report = scenario.purge(journal)
        assert scenario.rows().keys() == reachable
        assert report.removed_rows == len(before) - len(reachable)
        assert report.removed_bytes == sum(len(before[i].data) for i in before.keys() - reachable)
        assert total(report.stays, "reachable") == len(reachable)
        scenario.check()
        assert not journal.exists()

    def test_a_dry_run_reports_the_same_and_removes_nothing(
        self, scenario: Scenario, journal: Path
    ) -> None:
        make_garbage(scenario)
        scenario.days_pass()
        before = scenario.rows()
        dry = scenario.purge(None)
        assert scenario.rows() == before
        assert dry.removed_rows
        done = scenario.purge(journal)
        assert replace(done, dry_run=True) == dry

    def test_a_second_purge_finds_nothing(self, scenario: Scenario, journal: Path) -> None:
        make_garbage(scenario)
        scenario.days_pass()
        assert scenario.purge(journal).removed_rows
        assert not scenario.purge(journal).removed_rows

    def test_servers_go_on_after_a_purge(self, scenario: Scenario, journal: Path) -> None:
        lost = make_garbage(scenario)
        scenario.days_pass()
        scenario.purge(journal)
        scenario.put("main", "s1-1", "m3-1")
        with pytest.raises(ReferenceNotFound):
            scenario.another_server().references.create_branch("again", f"@{lost}")
        scenario.check()

    def test_removal_is_slowed_down_on_request(self, scenario: Scenario, journal: Path) -> None:
        make_garbage(scenario)
        scenario.days_pass()
        slept: list[float] = []
        world = replace(scenario.world, monotonic=lambda: 0.0, sleep=slept.append)
        request = PurgeRequest(dry_run=False, rows_per_second=10, rows_at_once=20, settle_seconds=7)
        running = Purge(scenario.backend, SMALL, world, request, journal)
        list(running.steps())
        removed = running.report().removed_rows
        assert slept[:3] == [1.0, 2.0, 3.0]  # Batches of a second, though more rows are allowed.
        assert slept[-2:] == [removed / 10, 7]


class TestWhatStays:
    def test_young_objects_stay_with_all_that_they_need(
        self, scenario: Scenario, journal: Path
    ) -> None:
        scenario.put("main", *(f"m{n}" for n in range(30)))
        scenario.repo.references.create_branch("side", "main")
        for n in range(8):
            scenario.put("side", *(f"s{n}-{k}" for k in range(8)))
        scenario.days_pass()
        young = scenario.put("side", "young")
        scenario.repo.references.delete("side")
        before = scenario.rows()
        report = scenario.purge(journal)
        assert not report.removed_rows
        assert scenario.rows() == before
        assert total(report.stays, "young") > 0
        scenario.another_server().references.create_branch("again", f"@{young}")
        scenario.check()
        scenario.repo.references.delete("again")
        scenario.days_pass()
        assert scenario.purge(journal).removed_rows

    def test_merge_parents_are_reachable(self, scenario: Scenario, journal: Path) -> None:
        scenario.put("main", "a")
        scenario.repo.references.create_branch("side", "main")
        merged = scenario.put("side", "b")
        scenario.repo.merge("side", "main")
        scenario.repo.references.delete("side")
        scenario.days_pass()
        scenario.purge(journal)
        assert ObjId(bytes.fromhex(merged)) in scenario.rows()
        scenario.check()

    def test_previous_heads_stay_as_long_as_their_reference_lists_them(
        self, scenario: Scenario, journal: Path
    ) -> None:
        old = scenario.put("main", "a")
        scenario.repo.references.create_branch("b", "main")
        lost = scenario.put("b", "c")
        scenario.repo.references.assign("b", f"@{old}")
        scenario.days_pass()
        scenario.purge(journal)
        assert ObjId(bytes.fromhex(lost)) in scenario.rows()
        for _ in range(2):  # A move forgets heads that are old.
            scenario.put("b", "d")
        scenario.days_pass()
        scenario.put("b", "e")
        scenario.purge(journal)
        assert ObjId(bytes.fromhex(lost)) not in scenario.rows()

    def test_notes_of_tags_and_settings_stay(self, scenario: Scenario, journal: Path) -> None:
        scenario.put("main", "a")
        scenario.repo.references.create_tag("t", "main", TagNote("a note"))
        scenario.repo.set_repository_config(GarbageCollectorConfig())
        scenario.days_pass()
        before = scenario.rows()
        scenario.purge(journal)
        assert scenario.rows() == before
        assert {"t", "s", "r"} <= {row.kind for row in before.values()}
        assert scenario.another_server().references.note("t") == TagNote("a note")
        assert scenario.another_server().repository_config() is not None

    def test_references_that_are_being_created_or_deleted_are_roots(
        self, scenario: Scenario, journal: Path
    ) -> None:
        scenario.put("main", "a")
        for name in ("creating", "deleting"):
            scenario.repo.references.create_branch(name, "main")
        scenario.put("deleting", "b")
        head = scenario.put("creating", "c")
        scenario.repo.references.create_branch("new", f"@{head}")
        scenario.repo.references.delete("creating")
        refs = scenario.backend.read_refs("", ["refs/heads/new", "refs/heads/deleting"])
        new, deleting = refs["refs/heads/new"], refs["refs/heads/deleting"]
        # As an interrupted creation and an interrupted deletion leave them.
        scenario.backend.swap_ref("", RefSwap(new.name, new, None))
        scenario.backend.swap_ref(
            "", RefSwap(deleting.name, deleting, replace(deleting, deleted=True))
        )
        scenario.days_pass()
        scenario.purge(journal)
        assert new.pointer in scenario.rows()
        assert deleting.pointer in scenario.rows()
        assert scenario.another_server().references.get("new").hash == head
        scenario.check()

    def test_claims_on_content_ids_that_still_occur_stay(
        self, scenario: Scenario, journal: Path
    ) -> None:
        scenario.put("main", "a", "b")
        scenario.repo.commit("main", [Delete(ContentKey.of("b"))], "delete")
        scenario.repo.references.create_branch("side", "main")
        scenario.put("side", "c")
        scenario.repo.references.delete("side")
        scenario.days_pass()
        scenario.purge(journal)
        claims = [row for row in scenario.rows().values() if row.kind == "u"]
        assert len(claims) == 2

    def test_objects_that_are_not_understood_stay(self, scenario: Scenario, journal: Path) -> None:
        custom = [a_custom_row(b"signer-keys-singleton", "1"), a_custom_row(b"c" * 32, None)]
        other = encode(Unique("other-space", b"value"), 1000)
        scenario.backend.insert_rows("", [*custom, other])
        scenario.days_pass()
        report = scenario.purge(journal)
        assert {row.id for row in (*custom, other)} <= scenario.rows().keys()
        assert total(report.stays, "unknown") == 3

    def test_objects_without_a_time_stay_unless_they_are_included(
        self, scenario: Scenario, journal: Path
    ) -> None:
        make_garbage(scenario)
        rows = scenario.rows()
        garbage = [rows[id] for id in rows.keys() - scenario.reachable()]
        commits = [row for row in garbage if row.kind == "c"]
        for row in commits:
            scenario.backend.swap_row("", row, replace(row, referenced_micros=0))
        scenario.days_pass()
        report = scenario.purge(journal)
        assert not report.removed_rows, "the commits need everything else"
        assert total(report.stays, "undated") == len(commits)
        report = scenario.purge(journal, include_undated=True)
        assert report.removed_rows == len(garbage)
        scenario.check()

    def test_a_row_that_is_written_again_after_the_scan_stays_with_all_that_it_needs(
        self, scenario: Scenario, journal: Path
    ) -> None:
        lost = make_garbage(scenario)
        scenario.days_pass()
        request = PurgeRequest(dry_run=False, rows_at_once=5)
        running = Purge(scenario.backend, SMALL, scenario.world, request, journal)
        before = scenario.rows()
        for step in running.steps():
            if step.stage == "sweep" and step.rows == 0:
                assert scenario.persist().touch(ObjId(bytes.fromhex(lost)))
        assert scenario.rows().keys() == before.keys()
        report = running.report()
        assert total(report.stays, "referenced") >= 1
        scenario.repo.references.create_branch("again", f"@{lost}")
        scenario.check()


class TestRefusals:
    def test_a_repository_with_a_missing_object_is_not_purged(
        self, scenario: Scenario, journal: Path
    ) -> None:
        make_garbage(scenario)
        scenario.days_pass()
        for kind in "ciIr":
            lost = next(
                row
                for id, row in scenario.rows().items()
                if row.kind == kind and id in scenario.reachable()
            )
            scenario.backend.delete_rows("", [lost.id])
            self._assert_refused(scenario, journal)
            scenario.backend.insert_rows("", [lost])
        scenario.purge(journal)

    def test_a_repository_with_a_damaged_object_is_not_purged(
        self, scenario: Scenario, journal: Path
    ) -> None:
        make_garbage(scenario)
        scenario.days_pass()
        for kind in "iIr":
            good = next(
                row
                for id, row in scenario.rows().items()
                if row.kind == kind and id in scenario.reachable()
            )
            flipped = replace(good, data=good.data[:-1] + bytes([good.data[-1] ^ 1]))
            scenario.backend.swap_row("", good, flipped)
            self._assert_refused(scenario, journal)
            scenario.backend.swap_row("", flipped, good)
        scenario.purge(journal)

    def test_damage_in_unreachable_objects_does_not_matter(
        self, scenario: Scenario, journal: Path
    ) -> None:
        make_garbage(scenario)
        reachable = scenario.reachable()
        for id, row in scenario.rows().items():
            if id not in reachable and row.kind in "cI":
                scenario.backend.swap_row("", row, replace(row, data=row.data[:-3] + b"???"))
        scenario.days_pass()
        scenario.purge(journal)
        assert scenario.rows().keys() == reachable

    def test_impossible_requests_are_refused(self, scenario: Scenario, journal: Path) -> None:
        for options in (
            {"grace_seconds": -1.0},
            {"grace_seconds": float("nan")},
            {"settle_seconds": -1.0},
            {"rows_per_second": 0.0},
            {"rows_at_once": 0},
        ):
            with pytest.raises(BadRequest):
                scenario.purge(journal, **options)

    def test_a_store_without_the_repository_is_refused(self, scenario: Scenario) -> None:
        with pytest.raises(RepositoryMissing):
            Purge(MemoryBackend(), SMALL, scenario.world, PurgeRequest())

    def _assert_refused(self, scenario: Scenario, journal: Path) -> None:
        before: dict[ObjId, Row] = scenario.rows()
        with pytest.raises(RepositoryCorrupt, match="morag admin check"):
            scenario.purge(journal)
        assert scenario.rows() == before

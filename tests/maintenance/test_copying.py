"""Copies of repositories without Spark, part by part, interrupted anywhere."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morag import TagNote
from morag.backend.base import ObjId, Row, Slice
from morag.backend.memory import MemoryBackend
from morag.errors import ImportUnderWay, RepositoryCorrupt, RepositoryExists, RepositoryMissing
from morag.testing.backend_contract import a_custom_row, a_row
from morag.versions.maintenance.copying import CopySource, CopyTarget, copy_part, note_copied
from morag.versions.repository import Repository
from tests.maintenance.interrupted_backend import Killed
from tests.maintenance.purge_scenario import SMALL, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from morag.backend.base import RefSwap

PARTS = 3


class KilledBackend(MemoryBackend):
    """Ends the process at one of its writes."""

    left = -1

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        self._count()
        return super().insert_rows(repo, rows)

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        self._count()
        return super().swap_ref(repo, swap)

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        self._count()
        super().delete_rows(repo, ids)

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


def made(backend: MemoryBackend) -> Scenario:
    scenario = Scenario(backend)
    for n in range(5):
        scenario.put("main", *(f"m{n}-{k}" for k in range(6)))
    scenario.repo.references.create_tag("t", "main", TagNote("note"))
    scenario.repo.references.create_branch("side", "main")
    scenario.put("side", "only here")
    backend.insert_rows("", [a_custom_row(b"custom", "1")])
    return scenario


def copy_all(scenario: Scenario, target: MemoryBackend) -> None:
    source = CopySource(scenario.backend, SMALL, scenario.world)
    to = CopyTarget(target, SMALL, scenario.world, source, PARTS)
    for index in to.missing_parts():
        part = Slice(index, to.parts)
        done = copy_part(scenario.backend, "", target, "", part)
        to.replace(done.changed)
        note_copied(target, "", part, source.state, 1)
    source.copy_log(target, "")
    to.finish()


def content(backend: MemoryBackend) -> object:
    stored = backend._repos[""]
    return stored.rows, stored.refs, stored.log


def test_a_copy_has_everything_of_its_source() -> None:
    source, target = MemoryBackend(), MemoryBackend()
    copy_all(made(source), target)
    assert content(target) == content(source)


@settings(max_examples=40)
@given(kills=st.lists(st.integers(1, 20), max_size=4), seed=st.integers(0, 1000))
def test_a_copy_can_be_interrupted_anywhere(kills: list[int], seed: int) -> None:
    source, target, random = MemoryBackend(), KilledBackend(), Random(seed)
    scenario = made(source)
    for target.left in [*kills, -1]:
        try:
            copy_all(scenario, target)
        except Killed:
            if not is_complete(source, target):
                if "int/repo" in target._repos[""].refs:
                    with pytest.raises(ImportUnderWay):
                        Repository(target, SMALL, scenario.world)
                if random.random() < 0.3:
                    scenario.put("side", f"later {random.random()}")
                continue
        break
    assert is_complete(source, target)


def test_a_copy_drops_references_that_its_source_lost_meanwhile() -> None:
    source, target, writes = MemoryBackend(), KilledBackend(), 0
    scenario = made(source)
    while "refs/heads/side" not in target._repos[""].refs:
        writes += 1
        target = KilledBackend()
        target.left = writes
        with pytest.raises(Killed):
            copy_all(scenario, target)
    scenario.repo.references.delete("side")
    target.left = -1
    copy_all(scenario, target)
    assert is_complete(source, target)


def is_complete(source: MemoryBackend, target: MemoryBackend) -> bool:
    """Objects that marked an interrupted copy may be left in it."""
    from_, to = source._repos[""], target._repos[""]
    left = [to.rows[id].kind for id in to.rows.keys() - from_.rows.keys()]
    return (
        from_.rows.items() <= to.rows.items()
        and (from_.refs, from_.log) == (to.refs, to.log)
        and len(left) <= 10
        and set(left) <= {"c", "s"}
    )


def test_unfit_sources_and_targets_are_refused() -> None:
    source, target = MemoryBackend(), MemoryBackend()
    scenario = made(source)
    with pytest.raises(RepositoryMissing):
        CopySource(MemoryBackend(), SMALL, scenario.world)
    reading = CopySource(source, SMALL, scenario.world)
    with pytest.raises(RepositoryExists, match="already"):
        CopyTarget(made(MemoryBackend()).backend, SMALL, scenario.world, reading, PARTS)
    target.insert_rows("", [a_row(1)])
    with pytest.raises(RepositoryExists, match="objects"):
        CopyTarget(target, SMALL, scenario.world, reading, PARTS)
    unfinished = MemoryBackend()
    CopyTarget(unfinished, SMALL, scenario.world, reading, PARTS)
    with pytest.raises(ImportUnderWay, match="copy"):
        CopySource(unfinished, SMALL, scenario.world)


def test_a_damaged_row_is_named() -> None:
    source, target = MemoryBackend(), MemoryBackend()
    scenario = made(source)
    source.insert_rows("", [Row(ObjId(b"d" * 32), "", b"")])
    with pytest.raises(RepositoryCorrupt, match="6464"):
        copy_all(scenario, target)
    with pytest.raises(ImportUnderWay):
        Repository(target, SMALL, scenario.world)

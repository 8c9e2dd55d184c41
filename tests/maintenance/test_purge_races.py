"""A purge beside servers that commit, merge and change references between any two of its calls."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from morag import ContentKey, Delete, TagNote
from morag.backend.memory import MemoryBackend
from morag.errors import MoragError
from morag.versions.maintenance.purge import Purge
from morag.versions.maintenance.purge_report import PurgeRequest
from tests.backend.counting import CountingBackend
from tests.maintenance.interrupted_backend import InterruptedBackend, Killed
from tests.maintenance.purge_scenario import SMALL, Scenario

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

BRANCHES: Final = ("main", "a", "b", "c")
_ACTIONS: Final = (
    "commit",
    "commit",
    "commit",
    "commit",
    "delete key",
    "branch at head",
    "branch at head",
    "branch at old",
    "branch at old",
    "tag",
    "drop",
    "drop",
    "assign to old",
    "merge",
    "merge",
    "transplant",
    "prepare",
    "finish",
)


class Others:
    """Two servers with caches of their own, which do something at random.

    They know every hash there ever was. A request may be prepared, which finds its commits, and be
    carried out some steps later.
    """

    def __init__(self, scenario: Scenario, random: Random) -> None:
        self._scenario, self._random = scenario, random
        self._repos = [scenario.repo, scenario.another_server()]
        self.hashes: list[str] = []
        self._prepared: list[Callable[[], object]] = []
        self.left = 0

    def grow(self, actions: int) -> None:
        for _ in range(actions):
            self.act()
        self.finish()

    def act_sometimes(self, _: str = "") -> None:
        if self.left and self._random.random() < 0.25:
            self.left -= 1
            self.act()

    def act(self) -> None:
        action = self._random.choice(_ACTIONS)
        try:
            self._do(action)
        except MoragError as refusal:
            event(f"{action}: {type(refusal).__name__}")
        else:
            event(action)

    def finish(self) -> None:
        """Carry out all prepared requests."""
        while self._prepared:
            try:
                self._prepared.pop(0)()
            except MoragError as refusal:
                event(f"finish: {type(refusal).__name__}")

    def _do(self, action: str) -> None:
        random = self._random
        repo = self._scenario.repo = random.choice(self._repos)
        branch, other = random.choice(BRANCHES), random.choice(BRANCHES)
        old = f"@{random.choice(self.hashes)}" if self.hashes else "main"
        references = repo.references
        if action == "commit":
            names = [f"k{key}" for key in random.sample(range(30), random.randint(1, 9))]
            self.hashes.append(
                self._scenario.put(branch, *names, location=random.choice(["x", "y", None]))
            )
        elif action == "delete key":
            key = ContentKey.of(f"k{random.randrange(30)}")
            self.hashes.append(repo.commit(branch, [Delete(key)], "delete").hash)
        elif action == "branch at head":
            references.create_branch(branch, other)
        elif action == "branch at old":
            references.create_branch(branch, old)
        elif action == "tag":
            references.create_tag(f"tag-{branch}", old, TagNote(f"note {branch}"))
        elif action == "drop":
            references.delete(branch)
        elif action == "assign to old":
            references.assign(branch, old)
        elif action == "merge":
            repo.merge(random.choice([other, old]), branch)
        elif action == "transplant":
            repo.transplant([old.lstrip("@")], branch)
        elif action == "prepare":
            request = references.creation("BRANCH", branch, random.choice([other, old]))
            self._prepared.append(lambda: references._run(request))
        elif self._prepared:
            self._prepared.pop(0)()


def started(scenario: Scenario, others: Others, journal: Path, rows_at_once: int) -> Purge:
    between = InterruptedBackend(scenario.backend, others.act_sometimes)
    request = PurgeRequest(dry_run=False, rows_at_once=rows_at_once)
    return Purge(between, SMALL, scenario.world, request, journal)


def grown(random: Random) -> tuple[Scenario, Others]:
    """A repository with garbage that is days old, and requests that found some of it."""
    scenario = Scenario(CountingBackend(MemoryBackend()))
    others = Others(scenario, random)
    others.hashes.append(scenario.put("main", "k1", "k2"))
    for branch in BRANCHES[1:]:
        scenario.repo.references.create_branch(
            branch, random.choice(["main", f"@{others.hashes[-1]}"])
        )
        for _ in range(random.randint(1, 6)):
            names = [f"k{key}" for key in random.sample(range(30), random.randint(1, 9))]
            others.hashes.append(scenario.put(branch, *names, location=random.choice("xy")))
    others.grow(random.randint(0, 20))
    scenario.days_pass()
    others.left = 3
    for _ in range(6):
        others.act_sometimes()
    for branch in random.sample(BRANCHES[1:], random.randint(1, 3)):
        with suppress(MoragError):
            scenario.repo.references.delete(branch)
    others.left = random.randint(0, 30)
    return scenario, others


def check_clean(scenario: Scenario, others: Others, journal: Path) -> None:
    """Nothing is missing; and later, everything unreachable is gone."""
    scenario.check()
    others.finish()
    scenario.days_pass()
    scenario.purge(journal)
    scenario.check()
    assert scenario.rows().keys() == scenario.reachable()


def check_race(random: Random) -> None:
    scenario, others = grown(random)
    with TemporaryDirectory() as directory:
        journal = Path(directory) / "journal"
        running = started(scenario, others, journal, random.randint(1, 30))
        for step in running.steps():
            others.act_sometimes()
            if step.stage == "settle":
                others.finish()  # No request takes longer than the pause.
                others.left = 0
        report = running.report()
        running.close()
        event(f"removed: {report.removed_rows > 0}, put back: {report.put_back > 0}")
        check_clean(scenario, others, journal)


def check_killed(random: Random) -> None:
    scenario, others = grown(random)
    start, calls = random.choice(["scan_rows", "delete_unreferenced"]), random.randint(1, 60)
    is_counting = False

    def before(call: str) -> None:
        nonlocal calls, is_counting
        is_counting = is_counting or call == start
        calls -= is_counting
        if not calls:
            raise Killed
        others.act_sometimes()

    with TemporaryDirectory() as directory:
        journal = Path(directory) / "journal"
        request = PurgeRequest(dry_run=False, rows_at_once=random.randint(1, 30))
        between = InterruptedBackend(scenario.backend, before)
        running = None
        try:
            running = Purge(between, SMALL, scenario.world, request, journal)
            for _ in running.steps():
                others.act_sometimes()
        except Killed:
            event("killed")
        if running is not None:
            running.close()
        others.grow(random.randint(0, 5))
        scenario.days_pass(random.choice([0, 2]))
        scenario.purge(journal)
        assert not journal.exists()
        check_clean(scenario, others, journal)


_USUAL: Final = settings(
    max_examples=10,
    phases=[Phase.explicit, Phase.generate],  # The seed is enough; shrinking it would be in vain.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
_LONG: Final = settings(_USUAL, max_examples=200)


@_USUAL
@given(st.randoms(use_true_random=True))
def test_a_purge_keeps_everything_that_becomes_reachable_meanwhile(random: Random) -> None:
    check_race(random)


@_USUAL
@given(st.randoms(use_true_random=True))
def test_a_killed_purge_is_completed_by_the_next_one(random: Random) -> None:
    check_killed(random)


@pytest.mark.long
@pytest.mark.timeout(900)
@_LONG
@given(st.randoms(use_true_random=True))
def test_many_races(random: Random) -> None:
    check_race(random)


@pytest.mark.long
@pytest.mark.timeout(900)
@_LONG
@given(st.randoms(use_true_random=True))
def test_many_kills(random: Random) -> None:
    check_killed(random)

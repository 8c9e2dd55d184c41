"""Storing configs while replies get lost and others are faster: done once, and nobody's lost."""

from __future__ import annotations

import pytest

from morag.logic import history
from morag.model.configs import GarbageCollectorConfig
from morag.testing.faults import Fault, FaultyBackend, InjectedFault
from morag.versions.configs import CONFIGS
from morag.versions.world import World
from tests.safety.test_faults import NO_FAULTS, QUICK, BusyBackend, OthersOnTop, Store, Upcoming

GC = [GarbageCollectorConfig]


@pytest.fixture(params=[False, True], ids=["apply", "weak"])
def weak(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=[FaultyBackend, BusyBackend])
def store(request: pytest.FixtureRequest, weak: bool) -> Store:
    return Store(request.param, weak, QUICK, World())


def policy(text: str) -> GarbageCollectorConfig:
    return GarbageCollectorConfig(default_cutoff_policy=text)


def updates(store: Store) -> int:
    ref = store.other()._persist.ref(CONFIGS)
    assert ref is not None
    return len([*history.log(store.other()._persist, ref.pointer)])


@pytest.mark.parametrize("fault", [Fault.AFTER, Fault.FALSE_AFTER])
@pytest.mark.parametrize("passed", range(3))
def test_a_first_update_whose_reply_is_lost_is_done_once(
    store: Store, fault: Fault, passed: int
) -> None:
    """Of committing the reference's name, of inserting its row, or of the update itself."""
    plan = store.backend.plan = Upcoming({store.swap: [*[None] * passed, fault]})
    assert store.repo.configs.update(policy("1")) is None
    assert plan.is_over
    assert store.other().configs.get(GC) == [policy("1")]
    assert updates(store) == 1


def test_a_lost_reply_with_others_on_top_tells_what_was_replaced(store: Store) -> None:
    store.repo.configs.update(policy("1"))
    other = store.other()
    replaced: list[object] = []
    store.backend.plan = OthersOnTop(
        store.swap, lambda: replaced.append(other.configs.update(policy("3")))
    )
    assert store.repo.configs.update(policy("2")) == policy("1")
    assert replaced == [policy("2")]
    assert store.other().configs.get(GC) == [policy("3")]


def test_the_slower_of_two_replaces_what_the_faster_stored(store: Store) -> None:
    other = store.other()
    other.configs.update(policy("1"))

    class Rival:
        def fault(self, method: str, call: int) -> Fault | None:
            if method == store.swap:
                store.backend.plan = NO_FAULTS
                assert other.configs.update(policy("2")) == policy("1")
            return None

    store.backend.plan = Rival()
    assert store.repo.configs.update(policy("3")) == policy("2")
    assert store.other().configs.get(GC) == [policy("3")]
    assert updates(store) == 3


def test_two_first_updates_keep_one_content_id(store: Store) -> None:
    other = store.other()

    class Rival:
        swaps = 0

        def fault(self, method: str, call: int) -> Fault | None:
            self.swaps += method == store.swap
            if self.swaps == 3:  # The name and the row are there, the update is to come.
                store.backend.plan = NO_FAULTS
                assert other.configs.update(policy("1")) is None
            return None

    store.backend.plan = Rival()
    assert store.repo.configs.update(policy("2")) == policy("1")
    ref = other._persist.ref(CONFIGS)
    assert ref is not None
    log = [*history.log(other._persist, ref.pointer)]
    assert len({commit.incremental[-16:] for commit in log}) == 1


@pytest.mark.parametrize("mends", [True, False], ids=["another", "same"])
def test_a_reference_that_was_left_half_created_is_no_obstacle(weak: bool, mends: bool) -> None:
    store = Store(FaultyBackend, weak, QUICK, World())
    store.backend.plan = Upcoming({store.swap: [None, Fault.BEFORE]})
    with pytest.raises(InjectedFault):
        store.repo.configs.update(policy("1"))
    store.backend.plan = NO_FAULTS
    assert store.repo.configs.get(GC) == []
    repo = store.other() if mends else store.repo
    assert repo.configs.update(policy("2")) is None
    assert store.other().configs.get(GC) == [policy("2")]


def test_a_stale_head_loses_no_update(store: Store) -> None:
    store.repo.configs.update(policy("1"))
    store.other().configs.update(policy("2"))
    store.backend.plan = Upcoming({"read_refs": [Fault.STALE] * 2})
    assert store.repo.configs.update(policy("1")) == policy("2")
    assert store.other().configs.get(GC) == [policy("1")]

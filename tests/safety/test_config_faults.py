"""Config updates with lost replies and races: each update is stored once, and none is lost."""

from __future__ import annotations

import pytest

from morag.logic import history
from morag.model.configs import GarbageCollectorConfig
from morag.versions.configs import CONFIGS
from morag.versions.world import World
from tests.backend.faulty import Fault, FaultyBackend, InjectedFault
from tests.safety.faulty_stores import (
    NO_FAULTS,
    QUICK,
    BeforeSwap,
    BusyBackend,
    OthersOnTop,
    Store,
    Upcoming,
)

GC = [GarbageCollectorConfig]


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
    """The reply is lost of the name's commit, of the row's insert, or of the update itself."""
    plan = store.backend.plan = Upcoming({store.swap: [*[None] * passed, fault]})
    assert store.repo.configs.update(policy("1")) is None
    assert plan.is_over
    assert store.other().configs.get(GC) == [policy("1")]
    assert updates(store) == 1


def test_a_lost_reply_with_later_commits_returns_the_replaced_config(store: Store) -> None:
    store.repo.configs.update(policy("1"))
    other = store.other()
    replaced: list[object] = []
    store.backend.plan = OthersOnTop(
        store.swap, lambda: replaced.append(other.configs.update(policy("3")))
    )
    assert store.repo.configs.update(policy("2")) == policy("1")
    assert replaced == [policy("2")]
    assert store.other().configs.get(GC) == [policy("3")]


def test_an_update_that_lost_a_race_replaces_the_winner(store: Store) -> None:
    other = store.other()
    other.configs.update(policy("1"))

    replaced: list[object] = []
    store.backend.plan = BeforeSwap(
        store, lambda: replaced.append(other.configs.update(policy("2")))
    )
    assert store.repo.configs.update(policy("3")) == policy("2")
    assert replaced == [policy("1")]
    assert store.other().configs.get(GC) == [policy("3")]
    assert updates(store) == 3


def test_two_first_updates_keep_one_content_id(store: Store) -> None:
    other = store.other()
    replaced: list[object] = []
    # The first two swaps commit the name and insert the row; the third one is the update.
    store.backend.plan = BeforeSwap(
        store, lambda: replaced.append(other.configs.update(policy("1"))), swap=3
    )
    assert store.repo.configs.update(policy("2")) == policy("1")
    assert replaced == [None]
    ref = other._persist.ref(CONFIGS)
    assert ref is not None
    log = [*history.log(other._persist, ref.pointer)]
    assert len({commit.incremental[-16:] for commit in log}) == 1


@pytest.mark.parametrize("other_server", [True, False], ids=["another", "same"])
def test_an_update_succeeds_after_a_failed_creation_of_the_reference(
    weak: bool, other_server: bool
) -> None:
    store = Store(FaultyBackend, weak, QUICK, World())
    store.backend.plan = Upcoming({store.swap: [None, Fault.BEFORE]})
    with pytest.raises(InjectedFault):
        store.repo.configs.update(policy("1"))
    store.backend.plan = NO_FAULTS
    assert store.repo.configs.get(GC) == []
    repo = store.other() if other_server else store.repo
    assert repo.configs.update(policy("2")) is None
    assert store.other().configs.get(GC) == [policy("2")]


def test_a_stale_head_loses_no_update(store: Store) -> None:
    store.repo.configs.update(policy("1"))
    store.other().configs.update(policy("2"))
    store.backend.plan = Upcoming({"read_refs": [Fault.STALE] * 2})
    assert store.repo.configs.update(policy("1")) == policy("2")
    assert store.other().configs.get(GC) == [policy("1")]

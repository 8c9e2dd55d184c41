"""Eight threads with small commits and one with large commits compete: no thread starves.

A race for a branch favours small commits: they arrive while a large commit is prepared, which then
has to start over. A lane is a queue, so each commit gets its turn.
"""

from __future__ import annotations

import time
from threading import Event
from typing import TYPE_CHECKING

import pytest

import morag
from tests.safety.history_checks import in_thread, key, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from morag.versions.repository import Repository

SMALL, SMALL_PUTS, LARGE_PUTS = 8, 1, 50


@pytest.fixture(params=["memory", "rocksdb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"rocksdb:{tmp_path / 'store'}"


def committer(repo: Repository, me: str, puts: int, stop: Event) -> Callable[[], int]:
    """A function that updates its own keys until `stop` is set, and counts its commits."""
    names = [f"{me}-{n}" for n in range(puts)]
    ids = repo.commit("main", [put(name) for name in names], me).added

    def run() -> int:
        commits = 0
        while not stop.is_set():
            commits += 1
            repo.commit("main", [put(name, commits, ids[key(name)]) for name in names], me)
        return commits

    return run


def compete(url: str, seconds: float, record: Callable[[str, object], None]) -> None:
    stop = Event()
    with morag.open(url) as repo:
        large = committer(repo, "large", LARGE_PUTS, stop)
        small = [committer(repo, f"small-{n}", SMALL_PUTS, stop) for n in range(SMALL)]
        running = [in_thread(run) for run in (large, *small)]
        time.sleep(seconds)
        stop.set()
        counts = [future.result(timeout=60) for future in running]  # Raises if a commit timed out.
        assert sum(1 for _ in repo.history.hashes("main")) == sum(counts) + SMALL + 1
    average = sum(counts[1:]) / SMALL
    ratio = counts[0] / average
    record("large commits per small commit", round(ratio, 2))
    print(f"\n{url.partition(':')[0]}: {counts[0]} large, {average:.0f} small each, {ratio:.2f}")  # noqa: T201 - The result of the experiment.
    assert min(counts) > 0
    assert ratio >= 0.5
    assert min(counts[1:]) >= 0.5 * average, "the threads with small commits differ too much"


def test_a_large_commit_does_not_starve(
    url: str, record_property: Callable[[str, object], None]
) -> None:
    compete(url, 1.5, record_property)


@pytest.mark.long
def test_a_large_commit_does_not_starve_for_longer(
    url: str, record_property: Callable[[str, object], None]
) -> None:
    compete(url, 20.0, record_property)

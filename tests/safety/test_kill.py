"""After a kill at any moment, the store opens and holds each acknowledged commit once."""

from __future__ import annotations

from random import Random
from threading import Timer
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct

import morag
from tests.safety import committer
from tests.safety.history_checks import check_acknowledged, found_names
from tests.sampling import seeds

if TYPE_CHECKING:
    from pathlib import Path

NEWEST = 60  # The number of commits that are read completely.


class Reported(Struct):
    """The child's output before it died: what it tried, and the hashes of what was done."""

    tried: set[str]
    done: dict[str, str]

    def commits(self, words: set[str]) -> dict[str, str]:
        """The hashes of the commits on `main` among `words`, by message."""
        return {committer.commit_message(w): self.done.get(w, "") for w in words if ":" not in w}

    def names(self) -> dict[str, bool | None]:
        """Whether each branch must exist; None if the child died during the change."""
        names: dict[str, bool | None] = {}
        for name in {word.partition(":")[2] for word in self.tried if ":" in word}:
            if f"delete:{name}" in self.tried:
                names[name] = False if f"delete:{name}" in self.done else None
            else:
                names[name] = True if f"create:{name}" in self.done else None
        return names


def run_and_kill(url: str, name: str, after_seconds: float, *options: str) -> Reported:
    child = committer.start(url, name, *options)
    assert child.stdout is not None
    with child.stdout as out:
        assert out.readline() == b"ready\n", "the child did not start"
        timer = Timer(after_seconds, child.kill)
        timer.start()
        lines = out.read().decode().splitlines(keepends=True)
    timer.join()
    assert child.wait() == -9, "the child ended before it was killed"
    reported = Reported(set(), {})
    for line in lines:
        if line.endswith("\n"):
            verb, what, *hash = line.split()
            if verb == "try":
                reported.tried.add(what)
            else:
                reported.done[what] = hash[0]
    return reported


def kill_repeatedly(url: str, rounds: int, seed: int, *options: str) -> None:
    """Run all rounds on one store: each starts from the state that the last kill left."""
    random = Random(seed)
    reported = Reported(set(), {})
    for round in range(rounds):
        one = run_and_kill(url, f"r{round}", random.uniform(0.0, 0.35), "--references", *options)
        reported.tried |= one.tried
        reported.done |= one.done
        with morag.open(url) as repo:
            done, tried = reported.commits(set(reported.done)), reported.commits(reported.tried)
            check_acknowledged(repo, done, tried, NEWEST)
            names = reported.names()
            found = found_names(repo, names)
            assert {name for name, known in names.items() if known} <= found
            assert not {name for name, known in names.items() if known is False} & found
    assert len(reported.done) > rounds, "too few operations to prove anything"


@pytest.mark.parametrize(("scheme", "options"), committer.WAYS)
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(
    scheme: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    kill_repeatedly(f"{scheme}:{tmp_path / 'store'}", 5, 1, *options)


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds("kill seeds"))
@pytest.mark.parametrize(("scheme", "options"), committer.WAYS)
def test_nothing_acknowledged_is_lost_however_often_the_process_is_killed(
    scheme: str, options: tuple[str, ...], seed: int, tmp_path: Path
) -> None:
    kill_repeatedly(f"{scheme}:{tmp_path / 'store'}", 12, seed, *options)

"""Commits with long new keys on top of a branch that has many of them.

Each round creates a branch at the base branch and commits to it: early commits of a branch cost
something else than those after which its index is written anew.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import ReferenceNotFound
from morag.generate.branch_tips import BranchTip
from morag.generate.simulations.simulation import Simulation, paced, simple_table
from morag.model.keys import ContentKey
from morag.model.operations import Put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.client import Client
    from morag.generate.measuring import Measurements
    from morag.generate.workers import Worker

_PADDING: Final = "abcdefg_" * 32


class KeyListSpillingParameters(Struct, frozen=True, kw_only=True):
    branch: str
    base_commits: int = 98
    puts_per_base_commit: int = 10
    test_commits: int = 40
    puts_per_test_commit: int = 1
    users: int = 1
    rate: float = 0.0
    duration_seconds: float = 60.0


class KeyListSpilling(Simulation):
    def __init__(
        self, client: Client, measurements: Measurements, parameters: KeyListSpillingParameters
    ) -> None:
        super().__init__(client, measurements)
        self._parameters = parameters
        self._base = BranchTip("", "")
        self._rounds = count()
        self._tips: dict[int, BranchTip] = {}

    @property
    def seconds(self) -> float | None:
        return self._parameters.duration_seconds

    def prepare(self) -> None:
        given = self._parameters
        base = self._base = self._new_branch(f"{given.branch}-base", None)
        for commit in range(given.base_commits):
            puts = []
            for number in range(given.puts_per_base_commit):
                name = f"{commit * given.puts_per_base_commit + number} {_PADDING}"
                puts.append(Put(ContentKey.of(name), simple_table("base")))
            message = f"Base branch commit {commit + 1}/{given.base_commits}"
            base.head = self.client.commit(base.name, puts, message, expected=base.head).hash

    def users(self) -> Sequence[Worker]:
        return [
            paced(partial(self._step, user), rate=self._parameters.rate)
            for user in range(self._parameters.users)
        ]

    def _step(self, user: int, number: int) -> None:
        given = self._parameters
        number %= given.test_commits
        if number == 0:
            with self.request("create branch"):
                name = f"{given.branch}-test-{next(self._rounds)}"
                self._tips[user] = self._new_branch(name, self._base)
        tip = self._tips.get(user)
        if tip is None:  # Its branch could not be created.
            return
        puts = []
        for at in range(given.puts_per_test_commit):
            key = ContentKey.of(f"{user} {number} {at}{_PADDING}")
            puts.append(Put(key, simple_table(f"{user}/{number}/{at}")))
        with self.request("commit"):
            message = f"worker commit userId={user} testCommitNum={number + 1}"
            tip.head = self.client.commit(tip.name, puts, message, expected=tip.head).hash
        self.measured.committed(len(puts))

    def _new_branch(self, name: str, at: BranchTip | None) -> BranchTip:
        """Create a branch, in place of one that an earlier simulation left."""
        references = self.client.references
        with suppress(ReferenceNotFound):
            references.delete(name)
        return BranchTip.of(references.create_branch(name, None if at is None else at.spec))

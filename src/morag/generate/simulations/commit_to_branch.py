"""Users that update tables, each on its own branch or all on one."""

from __future__ import annotations

from enum import Enum
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from morag.generate.simulations.simulation import Simulation, paced, simple_table
from morag.model.keys import ContentKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.client import Client
    from morag.generate.branch_tips import BranchTip
    from morag.generate.measuring import Measurements
    from morag.generate.workers import Worker


class BranchMode(Enum):
    BRANCH_PER_USER_SINGLE_TABLE = "each user has a branch and updates one table there"
    BRANCH_PER_USER_RANDOM_TABLE = "each user has a branch and updates random tables there"
    SINGLE_BRANCH_RANDOM_TABLE = "all users update random tables on one branch"
    SINGLE_BRANCH_TABLE_PER_USER = "each user updates its own table on one branch"
    SINGLE_BRANCH_SINGLE_TABLE = "all users update one table on one branch"

    @property
    def has_branch_per_user(self) -> bool:
        return self.name.startswith("BRANCH_PER_USER")


class CommitToBranchParameters(Struct, frozen=True, kw_only=True):
    branch: str
    table_prefix: str
    mode: BranchMode = BranchMode.BRANCH_PER_USER_SINGLE_TABLE
    tables: int = 250
    """How many random tables there are."""
    unique_tables: bool = False
    """Create a table with each commit, instead of updating tables."""
    users: int = 1
    rate: float = 0.0
    """Commits per second and user; 0 means as many as possible."""
    commits: int = 100
    """Of each user; 0 means that only the duration limits them."""
    duration_seconds: float = 0.0
    seed: int = 0


class CommitToBranch(Simulation):
    """Each step reads a table and commits it changed, on top of the user's last commit."""

    def __init__(
        self, client: Client, measurements: Measurements, parameters: CommitToBranchParameters
    ) -> None:
        super().__init__(client, measurements)
        self._parameters = parameters
        self._names: list[str] = []

    @property
    def seconds(self) -> float | None:
        return self._parameters.duration_seconds or None

    def prepare(self) -> None:
        given = self._parameters
        per_user = [f"{given.branch}-{user}" for user in range(given.users)]
        self._names = per_user if given.mode.has_branch_per_user else [given.branch] * given.users
        for name in dict.fromkeys(self._names):
            self.created_or_found(name)

    def users(self) -> Sequence[Worker]:
        given = self._parameters
        return [
            paced(
                partial(
                    self._step, user, self.created_or_found(name), Random(f"{given.seed} {user}")
                ),
                rate=given.rate,
                steps=given.commits or None,
            )
            for user, name in enumerate(self._names)
        ]

    def _step(self, user: int, tip: BranchTip, random: Random, number: int) -> None:
        key = ContentKey.of(f"table-{self._table(user, random, number)}")
        message = f"test-commit {user} {number}"
        self.update(tip, key, simple_table(f"{user}/{number}"), message)

    def _table(self, user: int, random: Random, number: int) -> str:
        given = self._parameters
        if given.unique_tables:
            return f"{given.table_prefix}_{user}_{number}"
        match given.mode:
            case BranchMode.BRANCH_PER_USER_RANDOM_TABLE | BranchMode.SINGLE_BRANCH_RANDOM_TABLE:
                return f"{given.table_prefix}_{random.randrange(given.tables)}"
            case BranchMode.SINGLE_BRANCH_TABLE_PER_USER:
                return f"{given.table_prefix}_{user}"
            case _:
                return given.table_prefix

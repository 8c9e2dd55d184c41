"""Users that create branches, one after the other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from morag.generate.simulations.simulation import Simulation, paced
from morag.model.refspecs import RefSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.client import Client
    from morag.generate.measuring import Measurements
    from morag.generate.workers import Worker


class CreateManyBranchesParameters(Struct, frozen=True, kw_only=True):
    prefix: str
    branches: int = 100
    """Of each user."""
    users: int = 1
    rate: float = 0.0


class CreateManyBranches(Simulation):
    def __init__(
        self, client: Client, measurements: Measurements, parameters: CreateManyBranchesParameters
    ) -> None:
        super().__init__(client, measurements)
        self._parameters = parameters
        self._at = RefSpec()

    def prepare(self) -> None:
        head = self.client.references.get(self.client.default_branch)
        self._at = RefSpec(head.name, head.hash)

    def users(self) -> Sequence[Worker]:
        given = self._parameters
        return [
            paced(partial(self._create, user), rate=given.rate, steps=given.branches)
            for user in range(given.users)
        ]

    def _create(self, user: int, number: int) -> None:
        with self.request("create branch"):
            name = f"{self._parameters.prefix}-{user}-{number}"
            self.client.references.create_branch(name, self._at)

"""A repository whose requests an event loop carries out, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.versions.repository import Repository
from morag.versions.world import World
from tests import spawners
from tests.safety.faulty_stores import QUICK

if TYPE_CHECKING:
    from morag.backend.base import Backend
    from morag.config import Settings


class SteppedServer:
    def __init__(
        self, backend: Backend, world: World | None = None, settings: Settings = QUICK
    ) -> None:
        self.repo = Repository(backend, settings, world or World())
        self._spawner = spawners.ManualSpawner()
        self.outcomes: dict[str, str] = {}
        """The result or the kind of the failure of each request that was answered."""

    @property
    def waiting(self) -> list[str]:
        """Where the work that waits will run."""
        places = self._spawner.were_brief[-len(self._spawner.waiting) :]
        return ["loop" if brief else "thread" for brief in places if self._spawner.waiting]

    def run(self, place: str) -> None:
        """Run the next work, which must be for this place."""
        assert self.waiting[:1] == [place]
        self._spawner.run_one()

    def run_all(self) -> list[str]:
        """Run all work; return where it ran."""
        places = []
        while self.waiting:
            places += self.waiting[:1]
            self._spawner.run_one()
        return places

"""Picks the next step at random, so that histories grow and most requests succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.nessie.differential.merges import Merges
from tests.nessie.differential.reads import Reads
from tests.nessie.differential.writes import Writes

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.nessie.differential.pair import Pair
    from tests.nessie.differential.world import World


class Generator(Reads, Writes, Merges):
    def __init__(self, pair: Pair, world: World, random: Random) -> None:
        super().__init__(pair, world, random)
        weights: dict[Callable[[], None], int] = {
            self.commit: 30,
            self.create: 6,
            self.assign: 2,
            self.delete: 2,
            self.merge: 10,
            self.transplant: 6,
            self.namespaces: 6,
            self.configure: 1,
            self.type_change: 1,
            self.conflicting_type_change: 2,
            self.merge_a_rename: 1,
            self.references: 3,
            self.reference: 3,
            self.entries: 6,
            self.history: 6,
            self.diff: 4,
            self.content: 4,
            self.contents: 4,
            self.recent_changes: 2,
            self.config: 1,
            self.old_token: 1,
            self.mistakes: 4,
            self.reversed_bounds: 3,
            self.references_v1: 2,
            self.reference_v1: 1,
            self.entries_v1: 3,
            self.log_v1: 3,
            self.content_v1: 2,
            self.contents_v1: 2,
            self.diff_v1: 2,
            self.namespaces_v1: 2,
            self.namespace_v1: 2,
        }
        self._steps = list(weights)
        self._weights = list(weights.values())

    def step(self) -> None:
        [chosen] = self.random.choices(self._steps, self._weights)
        chosen()

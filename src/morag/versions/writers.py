"""The part of a repository that writes: lanes, known heads, references and the ref-log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct

from morag.errors import StoreReadOnly
from morag.logic.references import References
from morag.logic.reflog import RefLogWriter
from morag.logic.retry import Retries
from morag.versions.batches import BatchWriter
from morag.versions.known_heads import KnownHeads
from morag.versions.lanes import Lanes
from morag.versions.reference_lane import ReferenceLane

if TYPE_CHECKING:
    from morag.config import Settings
    from morag.persist.persist import Persist
    from morag.versions.world import World


class Writers(Struct, frozen=True):
    """Created only if a store is opened for writing."""

    references: References
    retries: Retries
    heads: KnownHeads
    lanes: Lanes
    reference_lane: ReferenceLane

    @classmethod
    def of(cls, persist: Persist, settings: Settings, world: World) -> Writers:
        retries = Retries(settings, world.monotonic, world.sleep, world.random)
        ref_log = RefLogWriter(persist, world.random_bytes)
        references = References(persist, ref_log, retries)
        heads = KnownHeads(is_shared=persist.is_shared)
        batches = BatchWriter(persist, references, ref_log, retries, heads, world)
        return cls(
            references,
            retries,
            heads,
            Lanes(batches, settings.lane_batch, world.let_others_run),
            ReferenceLane(persist, references, heads, batches.syncs, world.let_others_run),
        )


def no_writers() -> NoReturn:
    """Stands for the writers of a repository that was opened read-only."""
    raise StoreReadOnly

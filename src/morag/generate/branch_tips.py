"""Branches that several workers commit to, with the newest commit that they know of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from morag.errors import ReferenceConflict
from morag.model.refspecs import RefSpec
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.client import Client
    from morag.generate.measuring import Measurements
    from morag.model.keys import ContentKey
    from morag.model.references import Reference

T = TypeVar("T")

_REAL: Final = World()

_RETRIES: Final = 100
"""Of one commit: workers that change the same keys of a branch conflict with each other."""
_PAUSE_SECONDS: Final = 0.001
"""Times the number of retries so far, at most; random, so that no worker always loses."""


class BranchTip:
    """A branch, with a recent hash, and with namespaces that exist there."""

    def __init__(self, name: str, head: str) -> None:
        self.name = name
        self.head = head
        self.namespaces: set[ContentKey] = set()

    @classmethod
    def of(cls, reference: Reference) -> BranchTip:
        assert reference.name is not None, "branches have names"
        return cls(reference.name, reference.hash)

    @property
    def spec(self) -> RefSpec:
        return RefSpec(self.name, self.head)


def with_retries(
    client: Client,
    measurements: Measurements,
    tip: BranchTip,
    attempt: Callable[[], T],
    world: World = _REAL,
) -> T:
    """The result of an attempt to commit on top of `tip`, which is read again after a conflict."""
    for retry in range(_RETRIES):
        try:
            return attempt()
        except ReferenceConflict:
            measurements.retried()
            world.sleep(world.random.uniform(0, _PAUSE_SECONDS * retry))
            tip.head = client.references.get(tip.name).hash
    return attempt()

"""Checks a whole store in this process. `logic/whole_check.py` has the checks themselves."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from morag.errors import RepositoryMissing
from morag.logic.internal_refs import REFS, REPOSITORY
from morag.logic.whole_check import Totals, check_store
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.backend.base import Backend
    from morag.config import Settings
    from morag.logic.findings import Finding
    from morag.versions.world import World

CACHE_BYTES: Final = 32 * 1024 * 1024


class WholeCheck:
    """`findings` yields what is wrong; `totals` has what was seen when they have been read.

    The repository is not opened, because a damaged one might refuse that.
    """

    def __init__(self, backend: Backend, settings: Settings, world: World) -> None:
        self._backend = backend
        self._repo = settings.repository_id
        self._persist = Persist(backend, ObjectCache(CACHE_BYTES), settings, world.clock_nanos)
        self.totals = Totals(Counter())

    def findings(self) -> Iterator[Finding]:
        check_not_empty(self._backend, self._persist.settings)
        return check_store(self._persist, lambda: self._backend.scan_rows(self._repo), self.totals)


def check_not_empty(backend: Backend, settings: Settings) -> None:
    """Refuse a store that has nothing of the repository. Lost refs alone are findings."""
    repo = settings.repository_id
    if backend.read_refs(repo, [REFS, REPOSITORY]):
        return
    if next(iter(backend.scan_rows(repo)), None) is None:
        raise RepositoryMissing(
            "The store holds no such repository; check its URL and the repository's id"
        )

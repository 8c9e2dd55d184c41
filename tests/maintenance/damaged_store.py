"""A store with every kind of object, damage to it, and what a check reports."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from morag.backend.base import RefSwap
from morag.backend.memory import MemoryBackend
from morag.format.rows import encode_row
from morag.logic.whole_check import Totals, check_store
from morag.model.references import TagNote
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.format.unhashed_fields import uncovered
from tests.safety.full_repository import SMALL, fill

if TYPE_CHECKING:
    import morag
    from morag.backend.base import Backend, Row
    from morag.config import Settings
    from morag.logic.findings import Finding

HARMLESS: Final = {
    "nothing",
    "created",
    "kind",
    "removed value",
    "header bounds",
    "inherited entries",
}
"""Fields of a commit whose damage no check can notice. Of inherited entries, these are the old
values of removed keys."""


def filled(backend: Backend) -> Backend:
    """The store with a repository that has every kind of object."""
    fill_repository(Repository(backend, SMALL, World()))
    return backend


def fill_repository(repo: morag.Repository) -> None:
    fill(repo)
    repo.references.create_tag("noted", "main", note=TagNote("a note"))


def copied(backend: Backend, refs: list[str]) -> MemoryBackend:
    """The rows and refs in memory, where damage is easy to make."""
    copy = MemoryBackend()
    copy.insert_rows("", list(backend.scan_rows("")))
    for name, ref in backend.read_refs("", refs).items():
        copy.swap_ref("", RefSwap(name, None, ref))
    return copy


def found(backend: Backend, settings: Settings = SMALL) -> list[Finding]:
    persist = Persist(backend, ObjectCache(1 << 24), settings, lambda: 0)
    return list(check_store(persist, lambda: backend.scan_rows(""), Totals(Counter())))


def names_only(findings: list[Finding], row: Row) -> bool:
    """Whether the findings are about this object alone.

    A damaged commit may point to an object that does not exist: then that one is missing, and
    the commit is named as the one that needs it.
    """
    return bool(findings) and all(
        row.id == finding.id or row.id.hex() == finding.needed_by for finding in findings
    )


def is_unnoticeable(before: Row, after: Row) -> bool:
    """Whether damage to a commit is only in fields that nothing depends on."""
    if before.kind != "c":
        return False
    fields = uncovered(before.id, encode_row(before), encode_row(after))
    return bool(fields) and fields <= HARMLESS

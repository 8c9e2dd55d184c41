"""Where the search for contents starts: references, and where references once were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from morag.client import NotOffered
from morag.spark.gc.policies import Cutoff

if TYPE_CHECKING:
    from morag.client import Client
    from morag.spark.gc.plan import Plan
    from morag.versions.repository import Repository

_MOVES_AT_ONCE: Final = 1_000
# What a reference was before these is still below it.
_GROWING: Final = frozenset({"COMMIT", "MERGE", "TRANSPLANT", "CREATE_REFERENCE"})

# `root`: A name, or @ and the hash where a reference once was.
# `until`: A commit from where on everything is known.
ROOTS: Final = (
    "root STRING, hash STRING, commits BIGINT, since_nanos BIGINT, live BOOLEAN, until STRING"
)


class Root(Struct, frozen=True):
    """Where to start looking for contents, and how far they are live."""

    root: str
    hash: str
    cutoff: Cutoff | None
    until: str | None = None

    @classmethod
    def of(cls, row: Any) -> Root:
        cutoff = Cutoff(row.commits, row.since_nanos) if row.live else None
        return cls(row.root, row.hash, cutoff)

    def row(self) -> tuple[Any, ...]:
        cutoff = self.cutoff or Cutoff()
        live = self.cutoff is not None
        return self.root, self.hash, cutoff.commits, cutoff.since_nanos, live, self.until


def find_roots(catalog: Client | Repository, plan: Plan, *, dropped: bool) -> list[Root]:
    """All branches and tags, and where dropped and moved ones were, as far as a ref-log tells."""
    roots = [
        Root(each.name or "", each.hash, plan.policies.cutoff(each.name or "", plan.now_nanos))
        for each in catalog.references.list()
    ]
    if dropped:
        heads = {root.hash for root in roots}
        roots += [Root(f"@{hash}", hash, None) for hash in sorted(_former_heads(catalog) - heads)]
    return roots


def _former_heads(catalog: Client | Repository) -> set[str]:
    found: set[str] = set()
    token = None
    while True:
        try:
            page = catalog.references.moves(_MOVES_AT_ONCE, token)
        except NotOffered:
            return found  # The original keeps no ref-log: what only dropped branches had stays.
        found |= {m.hash_before for m in page.items if m.operation not in _GROWING}
        token = page.token
        if token is None:
            return found

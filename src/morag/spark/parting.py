"""`main...dev`: what changed on a reference since it parted from another. Needs no PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from morag.errors import BadRequest, ReferenceNotFound
from morag.format.objects import Commit
from morag.format.records import ObjId
from morag.logic.history import merge_base
from morag.model.names import NO_ANCESTOR_HASH
from morag.model.refspecs import RefSpec
from morag.model.times import parse_instant
from morag.versions.repository import Repository

if TYPE_CHECKING:
    from morag.catalog import Catalog
    from morag.model.results import LogEntry
    from morag.persist.persist import Persist
    from morag.spark.opening import Origin

DOTS: Final = "..."
"""The separator. No name of a reference contains two dots in a row."""

_FEWEST_ENTRIES: Final = 16
_MOST_ENTRIES: Final = 1_024


def since_parting(origin: Origin, one: str, other: str) -> tuple[str, str]:
    """The commit where `one` and `other` parted, and the commit of `other` now, as refs.

    The first is their merge base, over all parents: what was merged counts as shared. It is the
    empty state if they share no commit.
    """
    with origin.open() as catalog:
        left, right = catalog.resolve(one).hash, catalog.resolve(other).hash
        return f"@{_merge_base(catalog, left, right)}", f"@{right}"


def split_dots(text: str) -> tuple[str, str]:
    """The two sides of `main...dev`."""
    one, _, other = text.partition(DOTS)
    if not one or not other or other.startswith(".") or ".." in other:
        raise BadRequest(f"'{text}' must name two refs, as in main{DOTS}dev")
    return one, other


def _merge_base(catalog: Catalog, one: str, other: str) -> str:
    if NO_ANCESTOR_HASH in (one, other):
        return NO_ANCESTOR_HASH
    if isinstance(catalog, Repository):
        found = catalog.history.merge_base(RefSpec(None, one), RefSpec(None, other))
        return NO_ANCESTOR_HASH if found is None else found
    commits = _CommitsOfServer(catalog)
    base = merge_base(
        cast("Persist", commits),  # It reads commits, and nothing else.
        commits.fetch(Commit, ObjId(bytes.fromhex(one))),
        commits.fetch(Commit, ObjId(bytes.fromhex(other))),
    )
    return NO_ANCESTOR_HASH if base is None else base.id.hex()


class _CommitsOfServer:
    """Commits from the log of a server, Morag or Nessie, in pages that grow.

    The API does not have the sequence number of a commit. Its time takes that place: it only
    decides which commits are read first.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[ObjId, Commit] = {}
        self._entries = _FEWEST_ENTRIES

    def fetch(self, kind: type[Commit], id: ObjId) -> Commit:
        if id not in self._known:
            page = self._catalog.history.log(RefSpec(None, id.hex())).page(self._entries)
            self._known |= {commit.id: commit for commit in map(_commit, page.items)}
            self._entries = min(2 * self._entries, _MOST_ENTRIES)
        if id not in self._known:
            raise ReferenceNotFound(f"Commit '{id.hex()}' not found")
        return self._known[id]


def _commit(entry: LogEntry) -> Commit:
    """The parents of a commit. The rest of it is not needed."""
    meta: Any = entry.meta
    parents = meta.parents or (entry.parent,)
    first, *merged = (ObjId(bytes.fromhex(hash)) for hash in parents)
    time_nanos = 0 if meta.commit_time is None else parse_instant(meta.commit_time)
    return Commit(
        id=ObjId(bytes.fromhex(meta.hash)),
        created_micros=time_nanos // 1000,
        seq=time_nanos,
        tail=(first,),
        merge_parents=tuple(merged),
        incremental=b"",
    )

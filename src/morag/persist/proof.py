"""Whether a commit is what its id says.

The id of a commit covers its parent, message, headers and operations. The operations are those
entries of its incremental index that are its own; a row has them in key order, and that is how
Morag hashes them. But Nessie hashes them in the order in which its client sent them, which no row
keeps, and both hash the remove of a key that the same commit adds again, of which no row has a
trace. Commits that Nessie imported keep ids that were computed elsewhere. So an id that follows
from the row proves the commit, but one that does not proves nothing: `logic/refutation.py` tries
what else it could be, which takes too long for more than a few operations. For that reason Morag
seals commits of which not everything could be tried (`objects.Commit.sealed`). Others have the
bytes of Nessie's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.backend.base import ObjId
from morag.persist import ids
from morag.persist.index_bytes import OWN_ACTIONS, own_entries, split_index
from morag.persist.order import END, key_to_utf8
from morag.wire import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from morag.persist.objects import Commit

FEW_OPERATIONS: Final = 5
"""Up to so many operations, all orders are tried. A commit of ours with more is sealed."""

_ADD: Final = ord("A")


def is_proven(commit: Commit) -> bool:
    """Whether the id follows from the row. Never raises: bytes without sense prove nothing."""
    return any(_follows(commit, read) for read in (own_entries, _own_entries_exactly))


def _follows(commit: Commit, read: Callable[[bytes], Iterable[tuple[bytes, bytes]]]) -> bool:
    try:
        return _id_with(commit, read(commit.incremental)) == commit.id
    except UNREADABLE:
        return False


def _id_with(commit: Commit, own: Iterable[tuple[bytes, bytes]]) -> ObjId:
    removes, adds = [], []
    for key, op in own:
        if op[0] == _ADD:
            adds.append(ids.hashed_add(key, op[1], ObjId(op[3:-16]), op[-16:]))
        else:
            removes.append(ids.hashed_remove(key, op[1], op[-16:]))
    return ids.commit_id(commit.tail[0], commit.message, commit.headers, removes, adds)


def _own_entries_exactly(incremental: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The same for an index with values of unusual length, which the quick search passes over."""
    for key, chunk in zip(*split_index(incremental), strict=True):
        op = chunk[chunk.find(END, 1) + 2 :]
        if op[0] in OWN_ACTIONS:
            yield key_to_utf8(key), op

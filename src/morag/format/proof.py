"""Checks whether the id of a commit follows from its row.

The id of a commit covers its parent, message, headers and operations. The operations are the
commit's own entries in its incremental index. A row has them in key order, and Morag hashes them in
that order. Nessie hashes them in the order in which its client sent them, which is not stored. Both
also hash the remove of a key that the same commit adds again, which is not stored either. Commits
that Nessie imported keep ids that were computed elsewhere.

So an id that follows from the row proves that the commit is intact, but an id that does not follow
proves nothing. `logic/refutation.py` tries the other possibilities, which takes too long for more
than a few operations. Therefore Morag seals its commits for which not all of them could be tried
(`objects.Commit.sealed`). Its other commits have the same bytes as Nessie's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import RepositoryCorrupt
from morag.format import ids
from morag.format.damage import UNREADABLE
from morag.format.index_bytes import OWN_ACTIONS, own_entries, split_index
from morag.format.key_order import END, key_to_utf8
from morag.format.records import ObjId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from morag.format.ids import Headers
    from morag.format.objects import Commit

FEW_OPERATIONS: Final = 5
"""All orders of up to this many operations are tried. A commit of Morag with more is sealed."""

_ADD: Final = ord("A")


def is_proven(commit: Commit) -> bool:
    """Whether the id follows from the row. Never raises: unreadable bytes prove nothing."""
    return any(_follows(commit, read) for read in (own_entries, _own_entries_exactly))


def own_operations(commit: Commit) -> tuple[list[tuple[bytes, bytes]], bool]:
    """The commit's own entries in key order, with their keys in UTF-8, and whether its id follows.

    For readers of whole histories, which need both: the fast search is exact if the id follows
    from what it found. Otherwise the whole index is read. Raises an error if it is damaged.
    """
    try:
        own = list(own_entries(commit.incremental))
        if _id_with(commit, own) == commit.id:
            return own, True
        own = list(_own_entries_exactly(commit.incremental))
        return own, _id_with(commit, own) == commit.id
    except UNREADABLE as damage:
        raise RepositoryCorrupt.object(
            commit.id, f"has no readable incremental index ({damage})"
        ) from damage


def needs_seal(operations: int, *, is_merge_with_adds: bool) -> bool:
    """Whether damage to a commit of Morag could look like an intact commit of Nessie.

    It is then sealed, if its id follows from its row and its parent.
    """
    return operations > FEW_OPERATIONS or is_merge_with_adds


def id_in_key_order(
    parent: ObjId, message: str, headers: Headers, own: Iterable[tuple[bytes, bytes]]
) -> ObjId:
    """The id of a commit with these entries, whose keys are in UTF-8 and in the order of keys."""
    return id_of_texts(parent, ids.hashed_texts(message, headers), own)


def id_of_texts(parent: ObjId, texts: bytes, own: Iterable[tuple[bytes, bytes]]) -> ObjId:
    """As `id_in_key_order`. `texts` are the message and the headers, joined."""
    removes, adds = [], []
    for key, op in own:
        if op[0] == _ADD:
            adds.append(ids.hashed_add(key, op[1], ObjId(op[3:-16]), op[-16:]))
        else:
            removes.append(ids.hashed_remove(key, op[1], op[-16:]))
    return ids.commit_id_of_texts(parent, texts, (*removes, *adds))


def _follows(commit: Commit, read: Callable[[bytes], Iterable[tuple[bytes, bytes]]]) -> bool:
    try:
        return _id_with(commit, read(commit.incremental)) == commit.id
    except UNREADABLE:
        return False


def _id_with(commit: Commit, own: Iterable[tuple[bytes, bytes]]) -> ObjId:
    return id_in_key_order(commit.tail[0], commit.message, commit.headers, own)


def _own_entries_exactly(incremental: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Like `own_entries`, but also finds values of unusual length, which the fast search skips."""
    for key, chunk in zip(*split_index(incremental), strict=True):
        op = chunk[chunk.find(END, 1) + 2 :]
        if op[0] in OWN_ACTIONS:
            yield key_to_utf8(key), op

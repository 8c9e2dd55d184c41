"""Decides whether a commit whose id does not follow from its row is damaged.

`format/proof.py` explains why the id of an intact commit need not follow from its row. Such a
commit is refuted only if nothing that its writer may have hashed gives its id: the operations in
any order, with the removes of keys that it added again, whose former entries the parent has, and
the headers in the orders that they had before Nessie read and rewrote the commit.

Some ids depend on data that cannot be reconstructed, and such commits are never refuted:

- Nessie's commits with more operations than can be tried.
- Nessie's merges that add something. If the merged branch added a key again, Nessie hashes the
  remove of the merge base's entry, and for a forced merge the parent may have another entry, or
  none. (Since 0.78; squashed transplants, which had no merge parents, ended
  with 0.62.)
- Commits that Nessie imported, which keep their ids, and the commit at which it cut a history.
  (Morag notes the former parent when it cuts one, so that most such commits can be checked.)
- Commits of content without a content id: an id of zeros is hashed, but stored as none.

Morag seals such commits of its own: their ids follow from the row and the parent in one known way.
"""

from __future__ import annotations

from itertools import combinations, permutations
from math import comb, factorial
from typing import TYPE_CHECKING, Final

from morag.errors import RepositoryCorrupt
from morag.format import ids
from morag.format.damage import UNREADABLE
from morag.format.header_order import orders_before_rewrites
from morag.format.ids import ID_BYTES, NO_ANCESTOR
from morag.format.index_entries import (
    content_id_of,
    exists,
    has_content_id,
    is_current,
    payload_of,
    value_of,
)
from morag.format.key_order import key_to_utf8
from morag.format.objects import Commit, CommitKind
from morag.format.proof import FEW_OPERATIONS, is_proven
from morag.index.layered import index_of, replaced
from morag.index.segment import Segment
from morag.logic.cut_points import is_proven_with, recorded_parent
from morag.logic.repository import read_description
from morag.model.times import parse_instant
from morag.persist.persist import ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.format.ids import Headers
    from morag.format.records import ObjId
    from morag.index.layered import CommitIndex
    from morag.index.segment import Entry
    from morag.persist.persist import Persist

ORDERS_TRIED_ON_LOAD: Final = 2 * factorial(FEW_OPERATIONS)
"""All orders of a few operations, or fewer with keys that were added again: about a millisecond."""

# Nessie's tool that cuts a history gives the oldest remaining commit no parent and another
# message, but keeps its id.
_CUT: Final = " [updated to remove parents on "

_CLOCKS_DIFFER_MICROS: Final = 3_600_000_000
"""How far the clock of a server may be ahead of the clock of the machine that imported commits."""


def refutes(
    persist: Persist,
    commit: Commit,
    most_orders: int = ORDERS_TRIED_ON_LOAD,
    *,
    trusts_parent: bool = False,
) -> bool:
    """Whether the commit is certainly not what its id says.

    Reads other objects through `persist`. If the parent, or an object that it needs, is damaged,
    nothing is refuted, because its entries are unknown. A missing parent is different: then the
    parent's id in this commit may be damaged.
    """
    if is_proven(commit):
        return False
    try:
        return _contradicts(persist, commit, most_orders) and (
            trusts_parent or not _has_wrong_parent(persist, commit, most_orders)
        )
    except RepositoryCorrupt:
        return False


def fits(persist: Persist, commit: Commit) -> bool:
    """Whether the id of a commit follows from its row and its parent in one of the known ways."""
    if is_proven(commit):
        return True
    parent = index_of(persist, _parent(persist, commit))
    own = [entry for entry in Segment.decode(commit.incremental).items() if is_current(entry[1])]
    return id_with_readded(commit, parent, own) == commit.id or explains(commit, parent)


def explains(commit: Commit, parent: CommitIndex, most_orders: int = ORDERS_TRIED_ON_LOAD) -> bool:
    """Whether its operations, in some order, give the id of a commit on top of this index.

    False also if there are more orders than `most_orders`.
    """
    own = [entry for entry in Segment.decode(commit.incremental).items() if is_current(entry[1])]
    adds = [entry for entry in own if exists(entry[1])]
    removes = [entry for entry in own if not exists(entry[1])]
    readded = replaced(parent, adds)
    return _orders(len(removes), len(readded), len(adds)) <= most_orders and _matches(
        commit, removes, readded, adds
    )


def id_with_readded(commit: Commit, parent: CommitIndex, own: Sequence[Entry]) -> bytes:
    """The id of a commit of Morag that removed every entry of the parent that it replaced.

    `own` are its operations, in key order.
    """
    adds = [entry for entry in own if exists(entry[1])]
    removes = [entry for entry in own if not exists(entry[1])]
    gone = sorted((*removes, *replaced(parent, adds)))
    return _id_of(commit, commit.headers, _hashed_removes(gone), _hashed_adds(adds))


def is_cut_off(commit: Commit) -> bool:
    """Whether Nessie cut the history at this commit and removed its ancestors."""
    return commit.tail == (NO_ANCESTOR,) and _ends_with_cut(commit.message)


def is_cut_point(persist: Persist, commit: Commit) -> bool:
    """Whether Nessie or Morag cut the history at this commit."""
    return is_cut_off(commit) or _former_parent(persist, commit) is not None


def _former_parent(persist: Persist, commit: Commit) -> ObjId | None:
    """As `recorded_parent`. Most commits have a parent, and internal ones are never cut."""
    if commit.tail != (NO_ANCESTOR,) or commit.kind is CommitKind.INTERNAL:
        return None
    return recorded_parent(persist, commit)


def _ends_with_cut(message: str) -> bool:
    """Whether it ends with Nessie's note and a date. A regular expression can take long."""
    if not message.endswith("]"):
        return False
    note = message[message.rfind("]", 0, -1) + 1 : -1]
    _, found, date = note.partition(_CUT)
    return bool(found and date)


def _has_wrong_parent(persist: Persist, commit: Commit, most_orders: int) -> bool:
    """Whether the parent is damaged. Ancestors of the parent are trusted."""
    parent = _parent(persist, commit)
    return (
        parent is not None and not is_proven(parent) and _contradicts(persist, parent, most_orders)
    )


def _contradicts(persist: Persist, commit: Commit, most_orders: int) -> bool:
    """Whether nothing that the writer may have hashed gives this id."""
    former_parent = _former_parent(persist, commit)
    if former_parent is not None:
        return bool(former_parent) and not is_proven_with(commit, former_parent)
    try:
        own = [
            entry for entry in Segment.decode(commit.incremental).items() if is_current(entry[1])
        ]
    except UNREADABLE:
        return True
    adds = [entry for entry in own if exists(entry[1])]
    removes = [entry for entry in own if not exists(entry[1])]
    if commit.sealed:
        gone = sorted((*removes, *_replaced(persist, commit, adds)))
        return (
            _id_of(commit, commit.headers, _hashed_removes(gone), _hashed_adds(adds)) != commit.id
        )
    if _depends_on_more(commit, own, adds):
        return False
    # Checked before the parent is read: a commit has at least this many orders. Twenty operations
    # are beyond all limits, and the bound keeps the numbers small.
    if factorial(min(len(removes), 20)) * factorial(min(len(adds), 20)) > most_orders:
        return False
    readded = _replaced(persist, commit, adds)
    if _orders(len(removes), len(readded), len(adds)) > most_orders:
        return False
    return not _matches(commit, removes, readded, adds) and not _is_imported(persist, commit)


def _depends_on_more(commit: Commit, own: Sequence[Entry], adds: Sequence[Entry]) -> bool:
    """Whether what was hashed cannot be found in the row and the parent."""
    # A damaged byte can turn a header into a merge parent, but hardly into one that could be an id.
    is_merge = bool(adds) and any(len(id) == ID_BYTES for id in commit.merge_parents)
    lacks_content_id = commit.kind is CommitKind.NORMAL and not all(
        has_content_id(op) for _, op in own
    )
    return is_cut_off(commit) or is_merge or lacks_content_id


def _is_imported(persist: Persist, commit: Commit) -> bool:
    """Whether the commit is older than its repository, or than the end of an import into it.

    Internal commits are never imported.
    """
    if commit.kind is CommitKind.INTERNAL:
        return False
    description = read_description(persist)
    since = parse_instant(description.repository_created_time) // 1000
    if (imported := description.repository_imported_time) is not None:
        since = max(since, parse_instant(imported) // 1000 + _CLOCKS_DIFFER_MICROS)
    return commit.created_micros < since


def _replaced(persist: Persist, commit: Commit, adds: Sequence[Entry]) -> list[Entry]:
    """The parent's entries of keys to which the commit gave other content."""
    parent = _parent(persist, commit) if adds else None
    return [] if parent is None else replaced(index_of(persist, parent), adds)


def _parent(persist: Persist, commit: Commit) -> Commit | None:
    if commit.parent == NO_ANCESTOR:
        return None
    try:
        return persist.fetch(Commit, commit.parent)
    except ObjectMissing:
        return None


def _orders(removes: int, readded: int, adds: int) -> int:
    """The number of orders in which the operations and some `readded` removes may be hashed."""
    with_some = (comb(readded, size) * factorial(removes + size) for size in range(readded + 1))
    return sum(with_some) * factorial(adds)


def _matches(commit: Commit, removes: list[Entry], readded: list[Entry], adds: list[Entry]) -> bool:
    orders_of_headers = _headers_before_rewrites(commit.headers)
    hashed_adds = _hashed_adds(adds)
    return any(
        _id_of(commit, headers, first, then) == commit.id
        for gone in _with_some(removes, readded)
        for first in permutations(_hashed_removes(gone))
        for then in permutations(hashed_adds)
        for headers in orders_of_headers
    )


def _headers_before_rewrites(headers: Headers) -> set[Headers]:
    values = dict(headers)
    if len(values) < len(headers):
        return {headers}
    return {
        tuple((name, values[name]) for name in names)
        for names in orders_before_rewrites(list(values))
    }


def _with_some(removes: list[Entry], readded: list[Entry]) -> Iterator[list[Entry]]:
    """The removes, together with all of the `readded` ones, with none, and with some."""
    count = len(readded)
    for size in (count, *range(count)):
        for some in combinations(readded, size):
            yield sorted((*removes, *some))


def _hashed_removes(entries: Iterable[Entry]) -> list[bytes]:
    return [
        ids.hashed_remove(key_to_utf8(key), payload_of(op), content_id_of(op))
        for key, op in entries
    ]


def _hashed_adds(entries: Iterable[Entry]) -> list[bytes]:
    return [
        ids.hashed_add(key_to_utf8(key), payload_of(op), value_of(op), content_id_of(op))
        for key, op in entries
    ]


def _id_of(
    commit: Commit, headers: Headers, removes: Iterable[bytes], adds: Iterable[bytes]
) -> bytes:
    return ids.commit_id(commit.parent, commit.message, headers, (*removes, *adds))

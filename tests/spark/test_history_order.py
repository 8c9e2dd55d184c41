"""The commits of an export are found by walks, in any shape of history, each once and in order."""

from __future__ import annotations

from hashlib import sha256
from time import sleep
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morag.errors import RepositoryCorrupt
from morag.format.export_transcoding import stored_commit
from morag.format.ids import NO_ANCESTOR
from morag.format.object_codec import encode
from morag.format.objects import Commit
from morag.format.records import ObjId
from morag.spark.transfer.history_order import HistoryOrder, Piece
from morag.spark.transfer.read_ahead import ReadAhead

if TYPE_CHECKING:
    from collections.abc import Iterator

_TAIL = 3


def history(backs: list[int]) -> list[Commit]:
    """Commits with the distances to their parents, in a list of all commits."""
    commits: list[Commit] = []
    for at, back in enumerate(backs):
        parent = commits[at - 1 - back] if back < at else None
        tail = (NO_ANCESTOR,) if parent is None else (parent.id, *parent.tail)[:_TAIL]
        commits.append(
            Commit(
                id=ObjId(sha256(b"%d" % at).digest()),
                created_micros=1,
                seq=1 if parent is None else parent.seq + 1,
                tail=tail,
                incremental=b"\x02\x00",
            )
        )
    return commits


def order_of(commits: list[Commit]) -> HistoryOrder:
    rows = {commit.id: encode(commit) for commit in commits}
    return HistoryOrder(lambda ids: [stored_commit(rows[id]) for id in ids])


@given(
    st.lists(st.integers(0, 5), max_size=60),
    st.lists(st.integers(0, 59), max_size=12),
    st.lists(st.integers(0, 59), max_size=6),
    st.integers(1, 20),
)
def test_every_commit_is_found_once_and_after_its_parent(
    backs: list[int], heads: list[int], merged: list[int], most: int
) -> None:
    commits = history(backs)
    by_id = {commit.id: commit for commit in commits}
    found: list[Piece] = []
    with order_of(commits) as order:
        for some in (heads, merged):  # Merged commits are known when others were read.
            ids = [commits[at].id for at in some if at < len(commits)]
            order.note(ids if some is merged else (), ())
            found += order.walk(order.unknown_merge_parents() if some is merged else ids, most)
        order_heads, order_forks = order.heads(), order.forks()
    found.sort(key=lambda piece: piece.position)
    assert len({piece.position for piece in found}) == len(found)
    given_ids = [id for piece in found for id in piece.ids]
    known = {NO_ANCESTOR}
    for id in given_ids:
        assert by_id[id].parent in known
        assert id not in known
        known.add(id)
    reached = {NO_ANCESTOR}
    for at in (*heads, *merged):
        id = commits[at].id if at < len(commits) else NO_ANCESTOR
        while id not in reached:
            reached.add(id)
            id = by_id[id].parent
    assert known == reached
    children: dict[ObjId, int] = {}
    for id in given_ids:
        children[by_id[id].parent] = children.get(by_id[id].parent, 0) + 1
    merged_ids = {commits[at].id for at in merged if at < len(commits)}
    assert set(order_heads) == set(given_ids) - children.keys() - merged_ids
    assert set(order_forks) == {
        id for id, count in children.items() if count > 1 and id != NO_ANCESTOR
    }


def test_a_parent_that_descendants_do_not_know_is_refused() -> None:
    commits = history([0] * 8)
    with order_of(commits) as order:
        list(order.walk([commits[-1].id], 100))
        order.note((), [commits[4].id, commits[3].id])
        order.check_joints()
        order.note((), [commits[2].id, NO_ANCESTOR])
        with pytest.raises(RepositoryCorrupt, match="its history is being cut"):
            order.check_joints()


def test_reading_ahead_gives_all_items_in_order() -> None:
    taken: list[int] = []
    with ReadAhead(range(50), 8) as items:
        while some := items.take(3):
            assert len(some) <= 8
            taken += some
    assert taken == list(range(50))


def test_reading_ahead_raises_the_error_after_the_items_before_it() -> None:
    def failing() -> Iterator[int]:
        yield 1
        sleep(0.01)
        raise ValueError("bad")

    with ReadAhead(failing(), 8) as items:
        assert items.take(1) == [1]
        with pytest.raises(ValueError, match="bad"):
            items.take(1)


def test_reading_ahead_stops_when_nobody_reads() -> None:
    with ReadAhead(iter(int, 1), 8) as items:
        assert items.take(1)

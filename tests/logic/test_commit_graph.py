"""The commit graph against a plain dictionary of parents."""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morag.format.ids import NO_ANCESTOR
from morag.format.records import ObjId
from morag.logic.commit_graph import CommitGraph, GraphCommit

if TYPE_CHECKING:
    from collections.abc import Sequence


def _id(number: int) -> ObjId:
    return NO_ANCESTOR if number < 0 else ObjId(sha256(b"%d" % number).digest())


@st.composite
def _histories(draw: st.DrawFn) -> list[GraphCommit]:
    """Commits whose parents come earlier in the list; -1 is no ancestor."""
    commits: list[GraphCommit] = []
    for number in range(draw(st.integers(0, 30))):
        # Small steps make long lines; large ones make forks.
        parent = max(-1, number - draw(st.sampled_from([1, 1, 1, 1, 2, 5, 40])))
        merged = draw(st.lists(st.integers(0, number - 1), max_size=2)) if number else []
        seq = 1 if parent < 0 else commits[parent].seq + 1
        merges = tuple(_id(each) for each in merged)
        commits.append(GraphCommit(_id(number), _id(parent), seq, merges, number))
    return draw(st.permutations(commits))


def _ancestors(commits: Sequence[GraphCommit], heads: list[ObjId]) -> set[ObjId]:
    known = {commit.id: commit for commit in commits}
    found: set[ObjId] = set()
    waiting = list(heads)
    while waiting:
        id = waiting.pop()
        if id != NO_ANCESTOR and id not in found:
            found.add(id)
            if id in known:
                waiting += [known[id].parent, *known[id].merge_parents]
    return found


@given(_histories(), st.lists(st.integers(-1, 32), max_size=3), st.lists(st.integers(-1, 32)))
def test_the_marked_commits_are_the_heads_and_their_ancestors(
    commits: list[GraphCommit], heads: list[int], more: list[int]
) -> None:
    with CommitGraph() as graph:
        graph.add(commits)
        graph.mark(map(_id, heads))
        graph.mark(map(_id, more))  # Marking again adds to what is marked.
        expected = _ancestors(commits, [_id(head) for head in heads + more])
        assert set(graph.marked()) == expected
        assert set(graph.missing()) == expected - {commit.id for commit in commits}
        assert all(graph.is_marked(id) for id in expected)
        assert not graph.is_marked(_id(99))


@given(_histories(), st.integers(1, 6))
def test_lines_hold_every_commit_once_and_follow_their_parents(
    commits: list[GraphCommit], most: int
) -> None:
    with CommitGraph() as graph:
        graph.add(commits)
        lines = list(graph.lines(most))
    seen: set[ObjId] = {NO_ANCESTOR}
    first_parents = [commit.parent for commit in commits]
    for line in lines:
        assert line.parent in seen
        assert 1 <= len(line.commits) <= most
        for before, after in pairwise(line.commits):
            assert after.parent == before.id
            assert first_parents.count(before.id) == 1
        seen |= {commit.id for commit in line.commits}
    assert sorted(commit.place for line in lines for commit in line.commits) == list(
        range(len(commits))
    )


@given(_histories())
def test_an_unforked_history_is_cut_only_where_lines_are_full(commits: list[GraphCommit]) -> None:
    with CommitGraph() as graph:
        graph.add(commits)
        lines = list(graph.lines(1000))
    first_parents = [commit.parent for commit in commits]
    for line in lines:  # No two lines could be one.
        assert line.parent == NO_ANCESTOR or first_parents.count(line.parent) > 1


@given(_histories())
def test_heads_have_no_children_and_forks_have_several(commits: list[GraphCommit]) -> None:
    parents = [parent for c in commits for parent in (c.parent, *c.merge_parents)]
    first_parents = [c.parent for c in commits]
    with CommitGraph() as graph:
        graph.add(commits)
        graph.add(commits)  # Adding twice changes nothing.
        assert len(graph) == len(commits)
        assert set(graph.heads()) == {c.id for c in commits if c.id not in parents}
        assert set(graph.forks()) == {c.id for c in commits if first_parents.count(c.id) > 1}


@given(_histories(), st.integers(0, 30))
def test_lines_of_marked_commits_leave_out_the_others(
    commits: list[GraphCommit], head: int
) -> None:
    with CommitGraph() as graph:
        graph.add(commits)
        graph.mark([_id(head)])
        found = [c.id for line in graph.lines(5, only_marked=True) for c in line.commits]
        expected = _ancestors(commits, [_id(head)]) & {commit.id for commit in commits}
    assert sorted(found) == sorted(expected)


def test_a_closed_graph_cannot_be_used() -> None:
    graph = CommitGraph()
    graph.close()
    with pytest.raises(Exception, match="closed"):
        len(graph)

"""Indexes that are completed between checkpoints are those that are completed one by one."""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from morag.backend.memory import MemoryBackend
from morag.errors import ArchiveInvalid
from morag.format.export_messages import (
    EXPORTED_COMMIT,
    ExportedCommit,
    ExportedOperation,
    OperationKind,
)
from morag.format.ids import NO_ANCESTOR
from morag.format.objects import Commit
from morag.format.records import ObjId
from morag.index.layered import index_of
from morag.logic.commit_graph import CommitGraph, GraphCommit
from morag.model.content import IcebergTable
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from morag.spark.transfer.index_completion import (
    checkpoints_of,
    completed_checkpoint,
    completed_group,
)
from morag.spark.transfer.line_groups import Group, GroupLine, LineGroups, with_forks
from morag.versions.transfer.imported_commits import imported
from tests.safety.full_repository import SMALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.versions.transfer.imported_commits import ImportedCommit

_VERSION: Final = 3
_PLACE: Final = 1 << 17  # Places have the size of the message in their lowest bits.

# Each commit has the position of its parent, counted backwards, and its changes: keys to put, or to
# delete if they are there.
_changes = st.dictionaries(st.integers(0, 30), st.booleans(), min_size=1, max_size=4)
_histories = st.lists(st.tuples(st.integers(0, 4), _changes), min_size=15, max_size=60)


@given(_histories, st.integers(1, 8))
@settings(deadline=None, max_examples=25)
def test_checkpoints_do_not_change_any_index(
    history: list[tuple[int, dict[int, bool]]], most: int
) -> None:
    _compare(history, most)


@pytest.mark.long
@given(_histories, st.integers(1, 30))
@settings(deadline=None, max_examples=120)
def test_checkpoints_do_not_change_any_index_of_many(
    history: list[tuple[int, dict[int, bool]]], most: int
) -> None:
    _compare(history, most)


def test_a_wrong_number_is_refused_also_at_a_checkpoint() -> None:
    for at in range(1, 9):
        commits = _exported([(0, {1: True})] * 9)
        commits[at:] = [replace(commit, seq=commit.seq + 1) for commit in commits[at:]]
        messages = [EXPORTED_COMMIT.encode(commit) for commit in commits]
        with pytest.raises(ArchiveInvalid, match=f"has the number {at + 2}, and its parent"):
            _import_in_groups(_empty(), commits, messages, most=3)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=40).map(
        lambda given: (
            [at - 1 - back if back < at else None for at, (back, _) in enumerate(given)],
            [is_checkpoint for _, is_checkpoint in given],
        )
    )
)
def test_each_line_is_on_the_way_to_one_checkpoint_at_most(
    lines: tuple[list[int | None], list[bool]],
) -> None:
    aboves, checkpoints = lines
    found = with_forks(aboves, checkpoints)
    assert all(now or not before for before, now in zip(checkpoints, found, strict=True))
    ways = [0] * len(aboves)
    for at, is_checkpoint in enumerate(found):
        above = aboves[at] if is_checkpoint else None
        while above is not None and not found[above]:
            ways[above] += 1
            above = aboves[above]
    assert max(ways, default=0) <= 1


def _compare(history: list[tuple[int, dict[int, bool]]], most: int) -> None:
    commits = _exported(history)
    expected, found = _empty(), _empty()
    parents: dict[ObjId, Commit] = {}
    for commit in commits:
        one = imported(expected, parents.get(commit.parent), commit)
        parents[commit.id] = _stored(expected, one)
    messages = [EXPORTED_COMMIT.encode(commit) for commit in commits]
    checkpoints = _import_in_groups(found, commits, messages, most)
    event(f"checkpoints: {min(checkpoints, 5)}")
    for commit in commits:
        assert _state(found, commit.id) == _state(expected, commit.id)
        assert found.fetch(Commit, commit.id).tail == expected.fetch(Commit, commit.id).tail


def _import_in_groups(
    persist: Persist, commits: Sequence[ExportedCommit], messages: Sequence[bytes], most: int
) -> int:
    """Import as the tasks of a job do; returns the number of checkpoints."""

    def of_line(line: GroupLine) -> list[bytes]:
        return [messages[place // _PLACE] for place in line.places]

    with CommitGraph() as graph:
        graph.add(
            GraphCommit(commit.id, commit.parent, commit.seq, place=at * _PLACE + 1)
            for at, commit in enumerate(commits)
        )
        with LineGroups(graph, most) as planned:
            groups: list[Group] = list(planned)
    assert all(len(group) <= most for group in groups)
    parents = persist.settings.parents_per_commit
    checkpoints = sorted(
        (found for group in groups for found in checkpoints_of(group, of_line, _VERSION, parents)),
        key=lambda found: found[0],
    )
    for _, checkpoint in checkpoints:
        _stored(persist, completed_checkpoint(persist, checkpoint))
    stored = {checkpoint.commit.id for _, checkpoint in checkpoints}
    for group in reversed(groups):  # They do not depend on each other.
        for each in completed_group(persist, group, of_line, _VERSION):
            assert each.commit.id not in stored
            stored.add(_stored(persist, each).id)
    assert stored == {commit.id for commit in commits}
    return len(checkpoints)


def _exported(history: list[tuple[int, dict[int, bool]]]) -> list[ExportedCommit]:
    commits: list[ExportedCommit] = []
    held: list[set[int]] = []
    for at, (back, changes) in enumerate(history):
        parent = commits[at - 1 - back] if back < at else None
        keys = set() if parent is None else set(held[at - 1 - back])
        operations = []
        for key, is_put in sorted(changes.items()):
            if is_put:
                operations.append(_put(key, at))
                keys.add(key)
            elif key in keys:
                operations.append(ExportedOperation(OperationKind.DELETE, (_key(key),), None, 1))
                keys.remove(key)
        commits.append(
            ExportedCommit(
                id=ObjId(sha256(b"%d" % at).digest()),
                seq=1 if parent is None else parent.seq + 1,
                parent=NO_ANCESTOR if parent is None else parent.id,
                operations=tuple(operations),
                created_micros=at,
                message=f"commit {at}",
            )
        )
        held.append(keys)
    return commits


def _put(key: int, at: int) -> ExportedOperation:
    id = f"00000000-0000-0000-0000-{key:012x}"
    table = IcebergTable(
        id=id, metadata_location=f"{at}", snapshot_id=at, schema_id=0, spec_id=0, sort_order_id=0
    )
    return ExportedOperation(OperationKind.PUT, (_key(key),), id, 1, msgspec.json.encode(table))


def _key(key: int) -> str:
    return f"M\0db\x01table with a long name {key:03}\0C"


def _empty() -> Persist:
    return Persist(MemoryBackend(), ObjectCache(1 << 20), SMALL, lambda: 0)


def _stored(persist: Persist, found: ImportedCommit) -> Commit:
    persist.store([*found.objects, found.commit])
    return found.commit


def _state(persist: Persist, id: ObjId) -> dict[bytes, bytes]:
    """All keys with what they hold, and the operations of the commit."""
    index = index_of(persist, persist.fetch(Commit, id))
    entries = dict(index.items())
    assert all(one < other for one, other in pairwise(entries))
    assert index.get_all(entries) == entries
    return {key: op[1:] for key, op in entries.items()} | {
        b"own " + key: op for key, op in index.operations()
    }

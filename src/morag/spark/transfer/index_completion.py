"""Completes the indexes of imported commits: checkpoints first, then the groups between them.

Nothing here imports Spark. The functions take a `Persist` and return objects; nothing is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from morag.errors import ArchiveInvalid
from morag.format.export_messages import ExportedCommit
from morag.format.ids import NO_ANCESTOR
from morag.format.objects import Commit
from morag.format.records import ObjId
from morag.index.layered import CommitIndex, index_of
from morag.index.segment import Segment
from morag.logic.completion import checkpoint_on
from morag.logic.history import head_commit
from morag.versions.transfer.imported_commits import (
    ImportedCommit,
    completed_removes,
    facts_of,
    imported,
    new_content_ids,
    operations_of,
    read_commit,
    verified,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from morag.persist.persist import Persist
    from morag.spark.transfer.line_groups import Group, GroupLine


class Checkpoint(Struct, frozen=True):
    """Everything that is needed to complete a commit some commits after `before`.

    `changes` has the last operation on each key of the commits in between, and `between` the ids of
    the newest of them, newest first: as many as a commit stores, or all of them.
    """

    before: ObjId
    commit: ExportedCommit
    changes: Segment
    between: tuple[ObjId, ...]
    has_all_between: bool


def checkpoints_of(
    group: Group, messages: Callable[[GroupLine], Sequence[bytes]], version: int, parents: int
) -> Iterator[tuple[int, Checkpoint]]:
    """The checkpoints of a group, with the numbers of their lines.

    `parents` is the number of ancestors that a commit stores.
    """
    ends: dict[int, ObjId] = {}
    for at, line in enumerate(group.lines):
        if not line.is_checkpoint:
            continue
        way = [line]
        above = line.above
        while above is not None and not group.lines[above].is_checkpoint:
            way.append(group.lines[above])
            above = group.lines[above].above
        before = group.parent if above is None else ends[above]
        newest_first = (message for each in way for message in reversed(messages(each)))
        commit = read_commit(next(newest_first), version)
        ends[at] = commit.id
        yield line.number, _checkpoint(before, commit, newest_first, version, parents)


def _checkpoint(
    before: ObjId,
    commit: ExportedCommit,
    newest_first: Iterator[bytes],
    version: int,
    parents: int,
) -> Checkpoint:
    between: list[ObjId] = []
    count = 0
    entries: dict[bytes, bytes] = {}
    decided: set[tuple[str, ...]] = set()
    for message in newest_first:
        earlier = read_commit(message, version)
        if count < parents:
            between.append(earlier.id)
        count += 1
        # Most operations are followed by others on the same keys, and need not be understood.
        last = tuple([op for op in earlier.operations if op.key not in decided])
        decided.update([op.key for op in last])
        for key, op in operations_of(replace(earlier, operations=last)).entries:
            entries.setdefault(key, op)
    changes = Segment.build(sorted(entries.items()))
    return Checkpoint(before, commit, changes, tuple(between), count == len(between))


def completed_checkpoint(persist: Persist, checkpoint: Checkpoint) -> ImportedCommit:
    """The complete commit. The index of the commit before it is read through `persist`."""
    before = head_commit(persist, checkpoint.before)
    changes, exported = checkpoint.changes, checkpoint.commit
    index = index_of(persist, before)
    parent = CommitIndex(persist, index.incremental.merged(changes), index.directory)
    operations = completed_removes(operations_of(exported), parent)
    tail = checkpoint.between
    if checkpoint.has_all_between:
        tail += (NO_ANCESTOR,) if before is None else (before.id, *before.tail)
    built = checkpoint_on(
        persist,
        before,
        changes,
        tail[: persist.settings.parents_per_commit],
        facts_of(exported),
        operations.entries,
    )
    commit, fits = verified(built.commit, parent, operations)
    objects = (*operations.values, *new_content_ids(operations, parent), *built.indexes)
    return ImportedCommit(commit, objects, fits)


def completed_group(
    persist: Persist, group: Group, messages: Callable[[GroupLine], Sequence[bytes]], version: int
) -> Iterator[ImportedCommit]:
    """The commits of a group without its checkpoints, which are stored already."""
    ends: list[Commit] = []
    for line in group.lines:
        parent = head_commit(persist, group.parent) if line.above is None else ends[line.above]
        own = messages(line)
        for message in own[:-1] if line.is_checkpoint else own:
            found = imported(persist, parent, read_commit(message, version))
            yield found
            parent = found.commit
        if line.is_checkpoint:
            last = persist.fetch(Commit, read_commit(own[-1], version).id)
            if parent is not None and last.seq != parent.seq + 1:
                raise ArchiveInvalid(
                    f"Commit {last.id.hex()} of the export has the number {last.seq}, and its "
                    f"parent has {parent.seq}"
                )
            parent = last
        assert parent is not None, "a line has commits"
        ends.append(parent)

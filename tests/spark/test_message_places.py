"""An import is planned from the heads of messages, whatever is in the files, and part by part."""

from __future__ import annotations

from array import array
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from morag.format.export_messages import EXPORTED_COMMIT, ExportedCommit, sized
from morag.format.ids import NO_ANCESTOR
from morag.format.records import ObjId
from morag.spark.transfer import message_places
from morag.spark.transfer.message_places import DataFiles, graph_commits

if TYPE_CHECKING:
    from pathlib import Path

    from morag.logic.commit_graph import GraphCommit
    from morag.spark.transfer.message_places import FilePart

_VERSION = 3


def commit(number: int, merge_parents: tuple[ObjId, ...] = ()) -> ExportedCommit:
    return ExportedCommit(
        id=_id(number),
        seq=number,
        parent=_id(number - 1) if number > 1 else NO_ANCESTOR,
        merge_parents=merge_parents,
        operations=(),
        created_micros=number,
        message=f"commit {number}",
    )


def planned(files: DataFiles) -> tuple[list[GraphCommit], int]:
    """The commits of the files, and the number of parts in which they were read."""
    left: list[FilePart] = [(number, 0) for number in range(len(files.names))]
    found: list[GraphCommit] = []
    parts = 0
    while left:
        for joined, rest in files.heads([left.pop()]):
            found += graph_commits(joined)
            parts += 1
            if rest is not None:
                left.append(rest)
    return sorted(found, key=lambda commit: commit.seq), parts


@pytest.mark.parametrize(("at_once", "parts"), [(100, 2), (4, 5), (3, 5), (1, 15)])
def test_a_large_file_is_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, parts: int
) -> None:
    monkeypatch.setattr(message_places, "_HEADS_AT_ONCE", at_once)
    messages = [EXPORTED_COMMIT.encode(commit(number)) for number in range(1, 16)]
    (tmp_path / "one").write_bytes(b"".join(map(sized, messages[:9])))
    (tmp_path / "two").write_bytes(b"".join(map(sized, messages[9:])))
    files = DataFiles.of(tmp_path, ["one", "two"], _VERSION)
    found, read = planned(files)
    assert [each.id for each in found] == [_id(number) for number in range(1, 16)]
    assert read == parts
    assert files.messages(array("q", [each.place for each in found])) == messages


def test_a_commit_may_have_very_many_merge_parents(tmp_path: Path) -> None:
    merged = tuple(map(_id, range(100, 70_100)))
    (tmp_path / "one").write_bytes(sized(EXPORTED_COMMIT.encode(commit(1, merged))))
    ((found,), _) = planned(DataFiles.of(tmp_path, ["one"], _VERSION))
    assert found.merge_parents == merged


def _id(number: int) -> ObjId:
    return ObjId(sha256(b"%d" % number).digest())

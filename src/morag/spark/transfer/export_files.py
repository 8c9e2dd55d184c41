"""The data files of an export, as executors write them. Nothing here imports Spark."""

from __future__ import annotations

import os
from bisect import bisect_left
from contextlib import suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from msgspec import Struct

from morag.format.export_messages import sized
from morag.format.records import ObjId
from morag.logic.bulk_reads import read_stored
from morag.spark.transfer.history_order import packed, unpacked
from morag.spark.transfer.stores import opened_persist
from morag.versions.transfer.exported_commits import exported, exported_content_id
from morag.versions.transfer.file_names import COMMITS, GENERIC, data_file_name, file_problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.format.export_transcoding import StoredCommit
    from morag.format.objects import Commit
    from morag.persist.persist import Persist
    from morag.spark.opening import Origin

WORK: Final = "unfinished"
"""A directory in the export for files that are not part of it. It is removed in the end."""
SHOWN_IDS: Final = 20
_AT_ONCE: Final = 500
_CONTENT_IDS: Final = "content-ids"
_CONTENT_ID_BYTES: Final = 16


class CommitFile(Struct, frozen=True):
    """A data file to write: its number, and the ids of its commits, joined."""

    number: int
    ids: bytes


class WrittenCommits(Struct, frozen=True):
    """A data file that was written.

    `merge_parents` are joined ids. `joints` are joined pairs of ids, too: of commits whose first
    parents are not before them in the file, and of these parents. `unproven` counts the ids that
    do not follow from what is stored; `unproven_ids` has some of them.
    """

    number: int
    commits: int
    merge_parents: bytes
    joints: bytes
    content_ids: int = 0
    unproven: int = 0
    unproven_ids: tuple[ObjId, ...] = ()


class ContentIdRange(Struct, frozen=True):
    """The claims in one data file: those on content ids from `lower` up to `upper`."""

    number: int
    lower: bytes
    upper: bytes | None


def write_commits(
    origin: Origin, directory: str, files: Iterable[CommitFile]
) -> Iterator[WrittenCommits]:
    with opened_persist(origin) as persist:
        for file in files:
            yield _write_commits(persist, Path(directory), file)


def write_claims(directory: str, ranges: Iterable[ContentIdRange]) -> Iterator[int]:
    """Write a claim on each content id of all commits once. Yields their numbers."""
    path = Path(directory)
    for part in ranges:
        found: set[bytes] = set()
        for source in (path / WORK).glob(f"{_CONTENT_IDS}-*"):
            found.update(_between(source, part))
        messages = (sized(exported_content_id(id)) for id in sorted(found))
        write_file(path, data_file_name(GENERIC, part.number), messages)
        yield len(found)


def joints_of(commits: Sequence[Commit | StoredCommit], before: ObjId | None) -> Iterator[ObjId]:
    """The commits whose first parents are not before them, each followed by its parent."""
    for commit in commits:
        if commit.parent != before:
            yield commit.id
            yield commit.parent
        before = commit.id


def write_file(directory: Path, name: str, pieces: Iterable[bytes]) -> None:
    """Write a file as a whole: a task that is tried again, or twice at once, writes the same."""
    temporary = directory / WORK / uuid4().hex
    with file_problems(directory):
        with temporary.open("xb", 1 << 20) as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(directory / name)


def _write_commits(persist: Persist, directory: Path, file: CommitFile) -> WrittenCommits:
    ids = unpacked(file.ids)
    merge_parents: dict[ObjId, None] = {}
    joints: list[ObjId] = []
    before: ObjId | None = None
    content_ids: set[bytes] = set()
    unproven: list[ObjId] = []

    def messages() -> Iterator[bytes]:
        nonlocal before
        for at in range(0, len(ids), _AT_ONCE):
            commits = read_stored(persist, ids[at : at + _AT_ONCE])
            found = exported(commits, persist.find)
            merge_parents.update((id, None) for commit in commits for id in commit.merge_parents)
            joints.extend(joints_of(commits, before))
            before = commits[-1].id
            content_ids.update(found.content_ids)
            unproven.extend(found.unproven)
            yield b"".join(map(sized, found.messages))

    write_file(directory, data_file_name(COMMITS, file.number), messages())
    write_file(directory, f"{WORK}/{_CONTENT_IDS}-{file.number:08d}", sorted(content_ids))
    for id in ids:
        merge_parents.pop(id, None)
    return WrittenCommits(
        file.number,
        len(ids),
        packed(list(merge_parents)),
        packed(joints),
        len(content_ids),
        len(unproven),
        tuple(unproven[:SHOWN_IDS]),
    )


def _between(path: Path, part: ContentIdRange) -> list[bytes]:
    """The content ids in the range, of a file with joined ones in their order."""
    if not path.stat().st_size:
        return []  # An empty file cannot be mapped.
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as joined:
        ids = _Joined(joined)
        low = bisect_left(ids, part.lower)
        high = len(ids) if part.upper is None else bisect_left(ids, part.upper)
        return [ids[at] for at in range(low, high)]


class _Joined:
    """Joined content ids as a sequence."""

    def __init__(self, joined: mmap) -> None:
        self._joined = joined

    def __len__(self) -> int:
        return len(self._joined) // _CONTENT_ID_BYTES

    def __getitem__(self, at: int) -> bytes:
        return self._joined[at * _CONTENT_ID_BYTES : (at + 1) * _CONTENT_ID_BYTES]


def remove_work(directory: Path) -> None:
    work = directory / WORK
    with suppress(FileNotFoundError), file_problems(directory):
        for path in work.iterdir():
            path.unlink()
        work.rmdir()

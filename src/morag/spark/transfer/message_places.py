"""Where messages are in the data files of an export, and their heads: enough to plan an import."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from struct import Struct as Layout
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

from msgspec import Struct

from morag.errors import ArchiveInvalid
from morag.format.export_messages import sized_messages
from morag.format.ids import ID_BYTES, NO_ANCESTOR
from morag.format.messages import VARINT_PATTERN
from morag.format.records import ObjId
from morag.logic.commit_graph import GraphCommit
from morag.protobuf import read_varint
from morag.versions.transfer.file_names import checked_name, file_problems
from morag.versions.transfer.imported_commits import read_commit

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Iterator, Sequence

_HEADS_AT_ONCE: Final = 25_000
_SIZE_BITS: Final = 17
_MOST_KIB: Final = (1 << _SIZE_BITS) - 1
_LONGEST_SIZE: Final = 10
_HEAD: Final = Layout("<32s32sqqI")
# The first fields of a commit in the order in which they are written.
_START: Final = re.compile(
    rb"\x0a\x20(.{32})\x10" + VARINT_PATTERN + rb"(?:\x1a\x20(.{32}))?((?:\x22\x20.{32})*)"
    rb"(?![\x0a\x10\x1a\x22])",
    re.DOTALL,
)


FilePart: TypeAlias = tuple[int, int]
"""The number of a file, and the offset at which the part of it begins that is still to be read."""


class DataFiles(Struct, frozen=True):
    """The files with commits of an export, in their order, as one sequence of bytes.

    The `place` of a message is its offset in this sequence and its size in KiB, in one number.
    """

    directory: str
    names: tuple[str, ...]
    ends: tuple[int, ...]
    version: int

    @classmethod
    def of(cls, directory: Path, names: Sequence[str], version: int) -> DataFiles:
        with file_problems(directory):
            sizes = [(directory / name).stat().st_size for name in names]
        return cls(str(directory), tuple(names), tuple(accumulate(sizes)), version)

    @property
    def size_bytes(self) -> int:
        return self.ends[-1] if self.ends else 0

    def heads(self, parts: Iterable[FilePart]) -> Iterator[tuple[bytes, FilePart | None]]:
        """The joined heads of some messages of each part, and what is left of it."""
        for part in parts:
            number, skipped = part
            start = self._start(number) + skipped
            joined: list[bytes] = []
            rest = None
            with file_problems(Path(self.directory)), self._open(number) as file:
                file.seek(skipped)
                for offset, message in sized_messages(file, self.names[number]):
                    if len(joined) == _HEADS_AT_ONCE:
                        rest = number, skipped + offset
                        break
                    joined.append(_head(message, start + offset, self.version))
            yield b"".join(joined), rest

    def messages_of(self, name: str) -> Iterator[bytes]:
        """All messages of another data file of the export."""
        path = Path(self.directory, checked_name(name))
        with file_problems(path), path.open("rb") as file:
            yield from (message for _, message in sized_messages(file, name))

    def messages(self, places: array[int]) -> list[bytes]:
        """The messages at these places, in the same order."""
        found: dict[int, bytes] = {}
        number, file = -1, None
        try:
            with file_problems(Path(self.directory)):
                for place in sorted(places):
                    offset = place >> _SIZE_BITS
                    if file is None or offset >= self.ends[number]:
                        if file is not None:
                            file.close()
                        number = bisect_right(self.ends, offset)
                        file = self._open(number)
                    found[place] = self._message(number, file, offset - self._start(number))
        finally:
            if file is not None:
                file.close()
        return [found[place] for place in places]

    def _open(self, number: int) -> BinaryIO:
        return (Path(self.directory) / self.names[number]).open("rb", 1 << 18)

    def _start(self, number: int) -> int:
        return self.ends[number - 1] if number else 0

    def _message(self, number: int, file: BinaryIO, offset: int) -> bytes:
        file.seek(offset)
        start = file.read(_LONGEST_SIZE)
        try:
            size, at = read_varint(start, 0)
        except (IndexError, ValueError):
            size, at = -1, 0
        file.seek(offset + at)
        message = file.read(size) if size >= 0 else b""
        if len(message) != size:
            raise ArchiveInvalid(f"Export file '{self.names[number]}' has changed")
        return message


def size_kib(place: int) -> int:
    return place & _MOST_KIB


def graph_commits(joined: bytes) -> Iterator[GraphCommit]:
    """The commits of joined heads."""
    at, end, size = 0, len(joined), _HEAD.size
    while at < end:
        id, parent, seq, place, merged = _HEAD.unpack_from(joined, at)
        at += size
        merge_parents: tuple[ObjId, ...] = ()
        if merged:
            after = at + merged * ID_BYTES
            merge_parents = tuple(
                [ObjId(joined[a : a + ID_BYTES]) for a in range(at, after, ID_BYTES)]
            )
            at = after
        yield GraphCommit(id, parent, seq, merge_parents, place)


def _head(message: bytes, offset: int, version: int) -> bytes:
    place = offset << _SIZE_BITS | min(-(-len(message) // 1024), _MOST_KIB)
    start = _START.match(message)
    if start is None:
        commit = read_commit(message, version)
        id, seq, parent, merged = commit.id, commit.seq, commit.parent, commit.merge_parents
    else:
        id, seq, parent = (
            ObjId(start[1]),
            read_varint(start[2], 0)[0],
            ObjId(start[3] or NO_ANCESTOR),
        )
        merged = tuple(ObjId(start[4][at + 2 : at + 34]) for at in range(0, len(start[4]), 34))
        if not 0 < seq < 1 << 63:
            raise ArchiveInvalid(f"Commit {id.hex()} of the export has the number {seq}")
    return _HEAD.pack(id, parent, seq, place, len(merged)) + b"".join(merged)

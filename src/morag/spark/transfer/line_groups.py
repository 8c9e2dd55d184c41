"""Cuts a history into groups of lines, so that executors complete the groups side by side.

A group is a connected part of the history that one task completes, oldest commits first. It needs
the complete index of one commit before it, its parent. Such commits, the *checkpoints*, are
completed beforehand: from one checkpoint to the next, without the commits in between.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import ArchiveInvalid
from morag.format.ids import NO_ANCESTOR
from morag.format.records import ObjId
from morag.spark.transfer.message_places import size_kib
from morag.temporary_database import temporary_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from morag.logic.commit_graph import CommitGraph, Line

_MOST_KIB: Final = 256 * 1024
"""The messages of a group are in the memory of a task."""
_SCHEMA: Final = """
    CREATE TABLE lines (
        number INTEGER PRIMARY KEY, last BLOB UNIQUE NOT NULL, part INTEGER NOT NULL,
        above INTEGER, places BLOB NOT NULL
    );
    CREATE TABLE parts (
        number INTEGER PRIMARY KEY, tree INTEGER NOT NULL, parent BLOB NOT NULL,
        size INTEGER NOT NULL, kib INTEGER NOT NULL
    );
"""
_IS_CHECKPOINT: Final = """
    SELECT number, above, places, EXISTS (
        SELECT 1 FROM lines AS child WHERE child.above = line.number AND child.part != line.part
    )
    FROM lines AS line WHERE part = ? ORDER BY number
"""


class GroupLine(Struct, frozen=True):
    """Consecutive commits, by the places of their messages.

    `above` is the position in the group of the line that they follow; None if they follow the
    parent of the group. If `is_checkpoint` is set, the last commit is a checkpoint.
    """

    number: int
    above: int | None
    is_checkpoint: bool
    places: array[int]


class Group(Struct, frozen=True):
    """Lines, each after the line that it follows. Groups of one `tree` depend on each other."""

    number: int
    tree: int
    parent: ObjId
    lines: tuple[GroupLine, ...]

    @property
    def has_checkpoints(self) -> bool:
        return any(line.is_checkpoint for line in self.lines)

    def all_places(self) -> array[int]:
        return array("q", [place for line in self.lines for place in line.places])

    def __len__(self) -> int:
        return sum(len(line.places) for line in self.lines)


class LineGroups:
    """The groups of a history, in a temporary file: memory does not grow with it.

    A line joins the group of its parent, until that has `most` commits.
    """

    def __init__(self, graph: CommitGraph, most: int) -> None:
        self._most = most
        self._count = 0
        self._db = temporary_database(_SCHEMA)
        self._db.execute("BEGIN")
        for line in graph.lines(most):
            self._add(line)
        self._db.execute("COMMIT")
        self._db.execute("CREATE INDEX below ON lines (above)")
        self._db.execute("CREATE INDEX of_part ON lines (part)")

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Group]:
        """All groups, each after the one that has its parent."""
        for number in range(self._count):
            (tree, parent) = self._db.execute(
                "SELECT tree, parent FROM parts WHERE number = ?", [number]
            ).fetchone()
            yield Group(number, tree, ObjId(parent), self._lines(number))

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> LineGroups:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _add(self, line: Line) -> None:
        places = array("q", [commit.place for commit in line.commits])
        kib = sum(map(size_kib, places))
        above, part, tree = self._above(line)
        if part is not None:
            size, before_kib = self._db.execute(
                "SELECT size, kib FROM parts WHERE number = ?", [part]
            ).fetchone()
            if size + len(places) > self._most or before_kib + kib > _MOST_KIB:
                part = None
        if part is None:
            part = self._count
            self._count += 1
            self._db.execute(
                "INSERT INTO parts VALUES (?, ?, ?, 0, 0)",
                [part, part if tree is None else tree, line.parent],
            )
        self._db.execute(
            "UPDATE parts SET size = size + ?, kib = kib + ? WHERE number = ?",
            [len(places), kib, part],
        )
        self._db.execute(
            "INSERT INTO lines VALUES (?, ?, ?, ?, ?)",
            [line.number, line.commits[-1].id, part, above, places.tobytes()],
        )

    def _above(self, line: Line) -> tuple[int | None, int | None, int | None]:
        """The line that has the parent, its group and its tree."""
        if line.parent == NO_ANCESTOR:
            return None, None, None
        found = self._db.execute(
            "SELECT lines.number, part, tree FROM lines JOIN parts ON parts.number = part"
            " WHERE last = ?",
            [line.parent],
        ).fetchone()
        if found is None:
            raise ArchiveInvalid(
                f"Commit {line.commits[0].id.hex()} of the export has the parent "
                f"{line.parent.hex()}, which the export does not have before it"
            )
        number, part, tree = found
        return number, part, tree

    def _lines(self, part: int) -> tuple[GroupLine, ...]:
        rows = self._db.execute(_IS_CHECKPOINT, [part]).fetchall()
        positions = {number: at for at, (number, *_) in enumerate(rows)}
        aboves = [None if above is None else positions.get(above) for _, above, *_ in rows]
        checkpoints = with_forks(aboves, [bool(is_one) for *_, is_one in rows])
        return tuple(
            GroupLine(number, above, is_checkpoint, array("q", places))
            for (number, _, places, _), above, is_checkpoint in zip(
                rows, aboves, checkpoints, strict=True
            )
        )


def with_forks(aboves: list[int | None], checkpoints: list[bool]) -> list[bool]:
    """Add the lines at which ways to several checkpoints part.

    So each line is on the way to at most one checkpoint, and its changes are computed once.
    """
    ways = [0] * len(aboves)
    found = list(checkpoints)
    for at in reversed(range(len(aboves))):
        found[at] = found[at] or ways[at] > 1
        above = aboves[at]
        if above is not None and (found[at] or ways[at]):
            ways[above] += 1
    return found

"""The commits of a repository as a graph, in a temporary file: memory does not grow with it."""

from __future__ import annotations

from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.format.ids import NO_ANCESTOR
from morag.format.records import ObjId
from morag.temporary_database import temporary_database

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

_AT_ONCE: Final = 10_000
_SCHEMA: Final = """
    CREATE TABLE commits (
        id BLOB PRIMARY KEY, parent BLOB NOT NULL, seq INTEGER NOT NULL, place INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE edges (
        child BLOB NOT NULL, parent BLOB NOT NULL, PRIMARY KEY (child, parent)
    ) WITHOUT ROWID;
    CREATE TABLE starts (id BLOB PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE marked (id BLOB PRIMARY KEY) WITHOUT ROWID;
"""
_MARK: Final = """
    INSERT OR IGNORE INTO marked
    WITH RECURSIVE reached (id) AS (
        SELECT id FROM starts WHERE id NOT IN (SELECT id FROM marked)
        UNION
        SELECT edges.parent FROM reached JOIN edges ON edges.child = reached.id
        WHERE edges.parent NOT IN (SELECT id FROM marked)
    )
    SELECT id FROM reached
"""
_ORDERED: Final = """
    SELECT id, parent, seq, place, parent IN (SELECT parent FROM forks)
    FROM commits {only} ORDER BY seq
"""
_LINES: Final = """
    SELECT line, id, parent, seq, place FROM lines JOIN commits USING (id) ORDER BY line, seq
"""
_ONLY_MARKED: Final = "WHERE id IN (SELECT id FROM marked)"


class GraphCommit(Struct, frozen=True, gc=False):
    """A commit without its content. `place` is a number of the caller, such as an offset."""

    id: ObjId
    parent: ObjId
    seq: int
    merge_parents: tuple[ObjId, ...] = ()
    place: int = 0


class Line(Struct, frozen=True):
    """Commits of which each is the first parent of the next.

    Only the last one can be the first parent of commits in other lines. `merge_parents` of these
    commits are left out.
    """

    number: int
    commits: tuple[GraphCommit, ...]

    @property
    def parent(self) -> ObjId:
        """The first parent of the first commit; `NO_ANCESTOR` at the start of a history."""
        return self.commits[0].parent


class CommitGraph:
    """Add commits in any order, then mark what is reachable, or read lines of history.

    Used in one thread. The file is deleted when the graph is closed.
    """

    def __init__(self) -> None:
        self._db = temporary_database(_SCHEMA)

    def add(self, commits: Iterable[GraphCommit]) -> None:
        """Add commits. One that is there already is left as it is."""
        commits = iter(commits)
        while some := list(islice(commits, _AT_ONCE)):
            self._db.execute("BEGIN")
            self._db.executemany(
                "INSERT OR IGNORE INTO commits VALUES (?, ?, ?, ?)",
                [(commit.id, commit.parent, commit.seq, commit.place) for commit in some],
            )
            self._db.executemany(
                "INSERT OR IGNORE INTO edges VALUES (?, ?)",
                [
                    (commit.id, parent)
                    for commit in some
                    for parent in (commit.parent, *commit.merge_parents)
                    if parent != NO_ANCESTOR
                ],
            )
            self._db.execute("COMMIT")

    def __len__(self) -> int:
        return self._count("SELECT count(*) FROM commits")

    def __contains__(self, id: ObjId) -> bool:
        return bool(self._count("SELECT count(*) FROM commits WHERE id = ?", id))

    # Reachable commits

    def mark(self, heads: Iterable[ObjId]) -> None:
        """Mark the heads and all their ancestors, by first parents and by merge parents."""
        self._db.execute("DELETE FROM starts")
        self._db.executemany(
            "INSERT OR IGNORE INTO starts VALUES (?)",
            ((head,) for head in heads if head != NO_ANCESTOR),
        )
        self._db.execute(_MARK)

    def is_marked(self, id: ObjId) -> bool:
        return bool(self._count("SELECT count(*) FROM marked WHERE id = ?", id))

    def marked(self) -> Iterator[ObjId]:
        """All marked ids, also missing ones, in order."""
        return self._ids("SELECT id FROM marked ORDER BY id")

    def missing(self) -> Iterator[ObjId]:
        """Marked ids of commits that were never added: a ref or a commit points to nothing."""
        return self._ids("SELECT id FROM marked WHERE id NOT IN (SELECT id FROM commits)")

    def missing_parents(self) -> Iterator[ObjId]:
        """Parents of commits, and merge parents, that were never added."""
        return self._ids(
            "SELECT DISTINCT parent FROM edges WHERE parent NOT IN (SELECT id FROM commits)"
        )

    # The shape of the history

    def heads(self) -> Iterator[ObjId]:
        """The commits that are a parent of none."""
        return self._ids("SELECT id FROM commits WHERE id NOT IN (SELECT parent FROM edges)")

    def forks(self) -> Iterator[ObjId]:
        """The commits that are the first parent of several."""
        self._find_forks()
        return self._ids("SELECT parent FROM forks ORDER BY parent")

    def lines(self, most: int, *, only_marked: bool = False) -> Iterator[Line]:
        """All commits in lines of at most `most`: each line follows the line of its parent.

        Relies on `seq`, which is the first parent's plus one.
        """
        self._find_forks()
        self._db.execute("DROP TABLE IF EXISTS lines")
        self._db.execute("CREATE TABLE lines (id BLOB PRIMARY KEY, line INTEGER) WITHOUT ROWID")
        numbered = self._numbered(most, _ONLY_MARKED if only_marked else "")
        while some := list(islice(numbered, _AT_ONCE)):
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO lines VALUES (?, ?)", some)
            self._db.execute("COMMIT")
        for number, rows in groupby(self._db.execute(_LINES), itemgetter(0)):
            commits = (
                GraphCommit(ObjId(id), ObjId(parent), seq, place=place)
                for _, id, parent, seq, place in rows
            )
            yield Line(number, tuple(commits))

    def _numbered(self, most: int, only: str) -> Iterator[tuple[bytes, int]]:
        """Each commit with the number of its line, older commits first.

        Only the lines that end at the current or the previous `seq` are in memory: as many as there
        are branches side by side.
        """
        number, current = -1, None
        ends: dict[bytes, tuple[int, int]] = {}
        earlier: dict[bytes, tuple[int, int]] = {}
        for id, parent, seq, _, is_forked in self._db.execute(_ORDERED.format(only=only)):
            if seq != current:
                earlier, ends, current = ends, {}, seq
            line, length = (None, 0) if is_forked else earlier.pop(parent, (None, 0))
            if line is None or length == most:
                number += 1
                line, length = number, 0
            ends[id] = line, length + 1
            yield id, line

    def _find_forks(self) -> None:
        self._db.execute("CREATE INDEX IF NOT EXISTS children ON commits (parent)")
        self._db.execute("DROP TABLE IF EXISTS forks")
        self._db.execute("CREATE TABLE forks (parent BLOB PRIMARY KEY) WITHOUT ROWID")
        self._db.execute(
            "INSERT INTO forks SELECT parent FROM commits WHERE parent != ?"
            " GROUP BY parent HAVING count(*) > 1",
            [NO_ANCESTOR],
        )

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> CommitGraph:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ids(self, query: str) -> Iterator[ObjId]:
        return (ObjId(id) for (id,) in self._db.execute(query))

    def _count(self, query: str, *arguments: bytes) -> int:
        (count,) = self._db.execute(query, arguments).fetchone()
        return int(count)

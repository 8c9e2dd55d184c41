"""Commits that were read in any order, in a temporary file, to be read again oldest first."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from morag.errors import ArchiveInvalid
from morag.format.export_messages import EXPORTED_COMMIT
from morag.format.ids import NO_ANCESTOR
from morag.format.records import ObjId
from morag.temporary_database import temporary_database

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from morag.format.export_messages import ExportedCommit

_CACHE_KIB: Final = 16 * 1024
_SCHEMA: Final = """
    CREATE TABLE commits (
        place INTEGER PRIMARY KEY, id BLOB UNIQUE NOT NULL, parent BLOB NOT NULL, message BLOB
    );
    CREATE TABLE merge_parents (id BLOB PRIMARY KEY) WITHOUT ROWID;
"""
_MISSING: Final = """
    SELECT id FROM merge_parents WHERE id NOT IN (SELECT id FROM commits)
    UNION
    SELECT parent FROM commits WHERE parent != ? AND parent NOT IN (SELECT id FROM commits)
    LIMIT ?
"""
_OLDEST_FIRST: Final = """
    WITH RECURSIVE numbered (place, id, seq) AS (
        SELECT place, id, 1 FROM commits WHERE parent = ?
        UNION ALL
        SELECT commits.place, commits.id, numbered.seq + 1
        FROM numbered JOIN commits ON commits.parent = numbered.id
        ORDER BY 3
    )
    SELECT message, seq FROM numbered JOIN commits USING (place)
"""


class CommitSpool:
    """Add commits newest first, line by line, then read all of them. Safe to use from many threads.

    The file is deleted when the spool is closed. Memory does not grow with the number of commits.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        # "" is a temporary file.
        self._db = temporary_database(_SCHEMA, cache_kib=_CACHE_KIB, shared_by_threads=True)
        self._count = 0

    def add(self, line: Sequence[ExportedCommit]) -> int:
        """Add commits of which each is the first parent of the one before, up to a known commit.

        Returns how many were added. If it is fewer than given, the next one was added earlier, and
        whoever did that also reads its parents.
        """
        rows = [(commit.id, commit.parent, EXPORTED_COMMIT.encode(commit)) for commit in line]
        with self._lock:
            new = 0
            while new < len(line) and not self._has(line[new].id):
                new += 1
            self._db.execute("BEGIN")
            self._db.executemany(
                "INSERT INTO commits (id, parent, message) VALUES (?, ?, ?)", rows[:new]
            )
            self._db.executemany(
                "INSERT OR IGNORE INTO merge_parents VALUES (?)",
                [(parent,) for commit in line[:new] for parent in commit.merge_parents],
            )
            self._db.execute("COMMIT")
            self._count += new
        return new

    def __contains__(self, id: ObjId) -> bool:
        with self._lock:
            return self._has(id)

    def __len__(self) -> int:
        return self._count

    def missing(self, most: int) -> list[ObjId]:
        """Parents of commits that are not here, at most so many of them."""
        with self._lock:
            return [ObjId(id) for (id,) in self._db.execute(_MISSING, [NO_ANCESTOR, most])]

    def oldest_first(self) -> Iterator[ExportedCommit]:
        """All commits, with `seq` counted from their first commits on."""
        with self._lock:
            self._db.execute("CREATE INDEX IF NOT EXISTS children ON commits (parent)")
            rows = self._db.execute(_OLDEST_FIRST, [NO_ANCESTOR])
        found = 0
        for message, seq in rows:
            yield replace(EXPORTED_COMMIT.decode(message), seq=seq)
            found += 1
        if found < len(self):
            raise ArchiveInvalid(
                f"{len(self) - found} commits are not connected to the start of any history"
            )

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> CommitSpool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _has(self, id: ObjId) -> bool:
        return self._db.execute("SELECT 1 FROM commits WHERE id = ?", [id]).fetchone() is not None

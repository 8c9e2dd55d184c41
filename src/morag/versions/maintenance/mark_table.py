"""All rows that a purge found, and which of them are marked, in a temporary file."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from morag.format.records import ObjId
from morag.logic.needed_objects import POINTING_KINDS
from morag.logic.row_facts import RowFacts
from morag.temporary_database import temporary_database

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_AT_ONCE: Final = 10_000
_KEYS_AT_ONCE: Final = 500
_SCHEMA: Final = """
    CREATE TABLE rows (
        id BLOB PRIMARY KEY, kind TEXT NOT NULL, micros INTEGER NOT NULL, bytes INTEGER NOT NULL,
        understood INTEGER NOT NULL, seq INTEGER NOT NULL, state TEXT
    ) WITHOUT ROWID;
    CREATE TABLE marked (
        id BLOB PRIMARY KEY, followed INTEGER NOT NULL, live INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX unfollowed ON marked (id) WHERE followed = 0;
    CREATE TABLE doomed (
        rank INTEGER, below INTEGER, id BLOB, PRIMARY KEY (rank, below, id)
    ) WITHOUT ROWID;
"""
_UNMARKED: Final = "id NOT IN (SELECT id FROM marked)"
_OWN_REASON: Final = """CASE
    WHEN NOT understood THEN 'unknown'
    WHEN micros <= 0 AND :keep_undated THEN 'undated'
    WHEN micros >= :cutoff THEN 'young' END"""
"""Why a row stays even if nothing leads to it."""
_RANK: Final = " ".join(f"WHEN '{kind}' THEN {rank}" for rank, kind in enumerate("cIirsvtu"))
"""Objects are removed before those that they may need."""
_DOOM: Final = f"""
    INSERT INTO doomed SELECT CASE kind {_RANK} END, -seq, id FROM rows
    WHERE {_UNMARKED} AND {_OWN_REASON} IS NULL
"""
_SUMS: Final = f"""
    SELECT kind, CASE
        WHEN state = 'referenced' THEN state
        WHEN live THEN 'reachable'
        ELSE coalesce(
            {_OWN_REASON},
            CASE WHEN live IS NOT NULL THEN 'needed'
                WHEN :dry_run OR state = 'removed' THEN 'removed' ELSE 'gone' END)
        END AS reason, count(*), sum(bytes)
    FROM rows LEFT JOIN marked USING (id) GROUP BY kind, reason
"""

REMOVED: Final = "removed"
REFERENCED: Final = "referenced"


class MarkTable:
    """The rows of a scan, and an exact set of marked ids.

    `cutoff_micros` is the time from which on rows are young. Used in one thread. The file is
    deleted when the table is closed.
    """

    def __init__(self, cutoff_micros: int, *, keep_undated: bool) -> None:
        self._db = temporary_database(_SCHEMA)
        self._rules = {"cutoff": cutoff_micros, "keep_undated": keep_undated}

    def add(self, rows: Sequence[RowFacts]) -> None:
        """Add rows. One that is there already is left as it is."""
        self._many(
            "INSERT OR IGNORE INTO rows VALUES (?, ?, ?, ?, ?, ?, NULL)",
            [(r.id, r.kind, r.referenced_micros, r.size_bytes, r.understood, r.seq) for r in rows],
        )

    # Marks

    def unmarked(self, ids: Sequence[ObjId]) -> list[ObjId]:
        """The ids that are not marked."""
        marked: set[bytes] = set()
        for at in range(0, len(ids), _KEYS_AT_ONCE):
            some = ids[at : at + _KEYS_AT_ONCE]
            places = ", ".join("?" * len(some))
            found = self._db.execute(f"SELECT id FROM marked WHERE id IN ({places})", some)
            marked.update(id for (id,) in found)
        return [id for id in ids if id not in marked]

    def mark(self, ids: Iterable[ObjId], *, follow: bool, live: bool) -> None:
        """Mark ids. One that is marked already is left as it is.

        `live` means that a reference leads to them. Otherwise they stay for another reason.
        """
        ids = iter(ids)
        while some := sorted(islice(ids, _AT_ONCE)):
            self._many(
                "INSERT OR IGNORE INTO marked VALUES (?, ?, ?)",
                [(id, not follow, live) for id in some],
            )

    def take_to_follow(self, most: int) -> list[ObjId]:
        """Some marked ids whose objects were not followed yet. From now on they count as such."""
        found = self._db.execute(
            "SELECT id FROM marked WHERE followed = 0 ORDER BY id LIMIT ?", [most]
        ).fetchall()
        self._many("UPDATE marked SET followed = 1 WHERE id = ?", found)
        return [ObjId(id) for (id,) in found]

    def keeping(self, *, commits: bool) -> Iterator[ObjId]:
        """Unmarked rows that stay for a reason of their own, and may need others."""
        kinds = ("c",) if commits else sorted(POINTING_KINDS)
        listed = ", ".join(f"'{kind}'" for kind in kinds)
        where = f"kind IN ({listed}) AND {_UNMARKED} AND {_OWN_REASON} NOT NULL"
        after = b""
        while True:  # In pages: the caller marks these ids meanwhile.
            found = self._db.execute(
                f"SELECT id FROM rows WHERE {where} AND id > :after ORDER BY id LIMIT :most",
                {**self._rules, "after": after, "most": _KEYS_AT_ONCE},
            ).fetchall()
            if not found:
                return
            after = found[-1][0]
            yield from (ObjId(id) for (id,) in found)

    # Removal

    def doom(self) -> None:
        """Decide which rows are to be removed. Rows that are marked later are left out."""
        self._db.execute(_DOOM, self._rules)

    def doomed(self, at_once: int) -> Iterator[list[RowFacts]]:
        """The doomed rows that are still unmarked, in the order of their removal, in batches.

        A batch is read when it is taken, so that rows marked meanwhile are left out.
        """
        after: tuple[int, int, bytes] = (-1, 0, b"")
        while True:
            found = self._db.execute(
                "SELECT rank, below, id, kind, micros, bytes FROM doomed JOIN rows USING (id)"
                f" WHERE (rank, below, id) > (?, ?, ?) AND {_UNMARKED}"
                " ORDER BY rank, below, id LIMIT ?",
                [*after, at_once],
            ).fetchall()
            if not found:
                return
            after = found[-1][:3]
            yield [
                RowFacts(ObjId(id), kind, micros, size) for _, _, id, kind, micros, size in found
            ]

    def note(self, ids: Iterable[ObjId], state: str) -> None:
        """Note that rows were `REMOVED`, or `REFERENCED` again since the scan."""
        self._many("UPDATE rows SET state = ? WHERE id = ?", [(state, id) for id in ids])

    def sums(self, *, dry_run: bool) -> list[tuple[str, str, int, int]]:
        """Kind, reason, number and bytes. In a dry run, doomed rows count as removed."""
        return self._db.execute(_SUMS, {**self._rules, "dry_run": dry_run}).fetchall()

    def close(self) -> None:
        self._db.close()

    def _many(self, text: str, values: Sequence[Sequence[object]]) -> None:
        self._db.execute("BEGIN")
        self._db.executemany(text, values)
        self._db.execute("COMMIT")

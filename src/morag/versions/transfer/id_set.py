"""A set of ids in a temporary file: memory does not grow with their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.temporary_database import temporary_database

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_CACHE_KIB: Final = 16 * 1024
_SCHEMA: Final = "CREATE TABLE ids (id BLOB PRIMARY KEY) WITHOUT ROWID"
_RECENT: Final = 50_000


class IdSet:
    """Content ids, or ids of objects, each once. The file is deleted when the set is closed."""

    def __init__(self) -> None:
        self._db = temporary_database(_SCHEMA, cache_kib=_CACHE_KIB)
        self._recent: set[bytes] = set()  # Most ids come again soon.

    def add(self, ids: Iterable[bytes]) -> None:
        new = set(ids) - self._recent
        if len(self._recent) > _RECENT:
            self._recent.clear()
        self._recent |= new
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR IGNORE INTO ids VALUES (?)", [(id,) for id in sorted(new)])
        self._db.execute("COMMIT")

    def __iter__(self) -> Iterator[bytes]:
        return (id for (id,) in self._db.execute("SELECT id FROM ids ORDER BY id"))

    def close(self) -> None:
        self._db.close()

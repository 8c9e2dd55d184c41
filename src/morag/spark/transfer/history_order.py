"""Finds the commits of an export, and their order, with a temporary file: memory does not grow.

Each commit stores the ids of its last ancestors, its tail. So a walk along first parents reads one
commit in twenty, and no executor has to scan the store.
"""

from __future__ import annotations

from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import RepositoryCorrupt
from morag.format.ids import ID_BYTES, NO_ANCESTOR
from morag.format.records import ObjId
from morag.temporary_database import temporary_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from morag.format.export_transcoding import StoredCommit

_HEADS_AT_ONCE: Final = 200
_SCHEMA: Final = """
    CREATE TABLE commits (number INTEGER PRIMARY KEY, id BLOB UNIQUE NOT NULL);
    CREATE TABLE walks (
        first INTEGER PRIMARY KEY, last INTEGER UNIQUE NOT NULL, ends_at BLOB NOT NULL
    );
    CREATE TABLE merge_parents (id BLOB PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE joints (id BLOB NOT NULL, parent BLOB NOT NULL);
"""
_STARTS: Final = "SELECT id FROM walks JOIN commits ON number = first"
_HEADS: Final = f"""
    {_STARTS}
    EXCEPT SELECT ends_at FROM walks
    EXCEPT SELECT id FROM merge_parents
"""
_FORKS: Final = f"""
    SELECT ends_at FROM walks WHERE ends_at != ?
    GROUP BY ends_at HAVING count(*) > 1 OR ends_at NOT IN ({_STARTS})
"""
_UNKNOWN: Final = "SELECT id FROM merge_parents WHERE id NOT IN (SELECT id FROM commits)"
# Walks go back in time, so the parent of a commit has the next number, except at the end of a walk.
_WRONG_JOINTS: Final = """
    SELECT joints.id FROM joints
    JOIN commits AS own ON own.id = joints.id
    LEFT JOIN walks ON walks.last = own.number
    LEFT JOIN commits AS next ON next.number = own.number + 1
    WHERE coalesce(ends_at, next.id) != joints.parent LIMIT 1
"""


class Piece(Struct, frozen=True):
    """Commits of a walk, or of several short ones, first parents before their children.

    Pieces are found in another order than that of their `position`, in which they must be read.
    """

    position: tuple[int, int]
    ids: list[ObjId]


class HistoryOrder:
    """Walks along first parents, each from a head back to a commit of an earlier walk.

    One thread can walk while another one notes what is known about the commits. The file is deleted
    when it is closed.
    """

    def __init__(self, read: Callable[[Sequence[ObjId]], Sequence[StoredCommit]]) -> None:
        self._read = read
        self._lock = Lock()
        self._db = temporary_database(_SCHEMA, shared_by_threads=True)
        self._count = self._walks = 0

    def walk(self, heads: Iterable[ObjId], most: int) -> Iterator[Piece]:
        """The heads and their ancestors by first parents, as far as they are new.

        A piece has about `most` commits. Walks that are longer are cut into several.
        """
        short: list[ObjId] = []
        first = self._walks
        for head in self._new(heads):
            self._walks += 1
            chunks = self._chunks(head, most)
            chunk, is_whole = next(chunks, ([], True))
            if is_whole:
                short += chunk[::-1]
            if short and (len(short) >= most or not is_whole):
                yield Piece((first, 0), short)
                short = []
            if not short:
                first = self._walks
            if not is_whole:
                yield Piece((self._walks, 0), chunk[::-1])
                for number, (older, _) in enumerate(chunks, 1):
                    if older:
                        yield Piece((self._walks, -number), older[::-1])
                first = self._walks + 1
        if short:
            yield Piece((first, 0), short)

    def note(self, merge_parents: Iterable[ObjId], joints: Iterable[ObjId]) -> None:
        """Note what was found in commits.

        `joints` are commits, each followed by its first parent, where that is not evident.
        """
        pairs = iter(joints)
        with self._lock:
            self._db.execute("BEGIN")
            self._db.executemany(
                "INSERT OR IGNORE INTO merge_parents VALUES (?)", ((id,) for id in merge_parents)
            )
            self._db.executemany("INSERT INTO joints VALUES (?, ?)", zip(pairs, pairs, strict=True))
            self._db.execute("COMMIT")

    def unknown_merge_parents(self) -> list[ObjId]:
        """Commits that were merged and are on no walk yet."""
        with self._lock:
            return self._ids(_UNKNOWN)

    def check_joints(self) -> None:
        """Refuse a commit whose first parent is not the one that its descendants store.

        The walks rely on that. It is wrong for some commits while a history is being cut.
        """
        with self._lock:
            wrong = self._ids(_WRONG_JOINTS)
        if wrong:
            raise RepositoryCorrupt.object(
                wrong[0],
                "has another parent than its descendants say: its history is being cut. Wait for "
                "the end of that, or export without Spark",
            )

    def heads(self) -> tuple[ObjId, ...]:
        """The commits that are a parent of none."""
        with self._lock:
            return tuple(self._ids(_HEADS))

    def forks(self) -> tuple[ObjId, ...]:
        """The commits that are the first parent of several."""
        with self._lock:
            return tuple(self._ids(_FORKS, NO_ANCESTOR))

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> HistoryOrder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _new(self, heads: Iterable[ObjId]) -> Iterator[StoredCommit]:
        """The heads that are not known when their turn comes, some of them read together."""
        heads = (head for head in heads if head != NO_ANCESTOR)
        while some := list(islice(heads, _HEADS_AT_ONCE)):
            unknown = [id for id in dict.fromkeys(some) if not self._known([id])]
            for commit in self._read(unknown) if unknown else ():
                if not self._known([commit.id]):
                    yield commit

    def _chunks(self, head: StoredCommit, most: int) -> Iterator[tuple[list[ObjId], bool]]:
        """A walk, newest first, at most about so many commits at once, and whether it is over."""
        first, commit = self._count, head
        chunk = [head.id]
        self._add(chunk)
        while True:
            new, ends_at = self._until_known(commit.tail)
            self._add(new)
            chunk += new
            if ends_at is not None:
                break
            if len(chunk) >= most:
                yield chunk, False
                chunk = []
            (commit,) = self._read(new[-1:])
        with self._lock:
            self._db.execute(
                "INSERT INTO walks VALUES (?, ?, ?)", [first, self._count - 1, ends_at]
            )
        yield chunk, True

    def _until_known(self, tail: tuple[ObjId, ...]) -> tuple[tuple[ObjId, ...], ObjId | None]:
        """The new ids of a tail, and the id at which the walk ends, if it is in the tail."""
        # If the last one is new, all are.
        if tail[-1] != NO_ANCESTOR and not self._known(tail[-1:]):
            return tail, None
        known = self._known(tail) | {NO_ANCESTOR}
        for at, id in enumerate(tail):
            if id in known:
                return tail[:at], id
        return tail, None

    def _known(self, ids: Sequence[ObjId]) -> set[ObjId]:
        marks = ", ".join("?" * len(ids))
        with self._lock:
            return set(self._ids(f"SELECT id FROM commits WHERE id IN ({marks})", *ids))

    def _add(self, ids: Sequence[ObjId]) -> None:
        with self._lock:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO commits VALUES (?, ?)", enumerate(ids, self._count))
            self._db.execute("COMMIT")
        self._count += len(ids)

    def _ids(self, query: str, *arguments: ObjId) -> list[ObjId]:
        return [ObjId(id) for (id,) in self._db.execute(query, arguments)]


def packed(ids: Sequence[ObjId]) -> bytes:
    return b"".join(ids)


def unpacked(ids: bytes) -> list[ObjId]:
    return [ObjId(ids[at : at + ID_BYTES]) for at in range(0, len(ids), ID_BYTES)]

"""Statements in the dialect of MariaDB and MySQL, and statements that must fit into a packet."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from morag.backend.sql import statements as sql
from morag.errors import RequestTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from morag.backend.base import LogRow, ObjId, Row
    from morag.backend.sql.statements import Statement

ERASE: Final = tuple(
    f"DELETE FROM {table} WHERE repo = ? LIMIT {sql.AT_ONCE}"
    for table in ("refs2", "objs2", "ref_log")
)
_INSERT: Final = "INSERT INTO objs2 (repo, obj_id, obj_type, obj_vers, obj_value, obj_ref) VALUES "
_LOG: Final = "INSERT INTO ref_log (repo, log_key, log_value) VALUES "
_AROUND_ROW_BYTES: Final = 2048
"""More than a row takes in a statement besides its data, which the driver writes in hex."""


@lru_cache(maxsize=256)
def spelt(text: str) -> str:
    """The statement in the dialect of these databases. Their `INSERT IGNORE` truncates values."""
    return text.removesuffix(sql.UNLESS_THERE).replace("?", "%s")


def insert_rows(repo: str, rows: Sequence[Row]) -> Statement:
    values = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(rows))
    return _INSERT + values, tuple(part for row in rows for part in sql.row_record(repo, row))


def lock_ids(repo: str, ids: Sequence[ObjId]) -> Iterator[Statement]:
    """The ids that are stored. Their rows are locked until the end of the transaction."""
    for text, args in sql.select(sql.IDS, repo, ids):
        yield f"{text} FOR UPDATE", args


def lock_identities(repo: str, ids: Sequence[ObjId]) -> Statement:
    """The values of `sql.row_identity` of up to `sql.AT_ONCE` rows, which are then locked."""
    columns = "repo, obj_id, obj_type, obj_vers, coalesce(obj_ref, 0)"
    where = f"repo = ? AND {sql.one_of('obj_id', ids)}"
    return f"SELECT {columns} FROM objs2 WHERE {where} FOR UPDATE", (repo, *ids)


def append_log(repo: str, rows: Sequence[LogRow]) -> Statement:
    values = ", ".join(["(?, ?, ?)"] * len(rows))
    args = tuple(part for row in rows for part in (repo, row.key, row.data))
    return f"{_LOG}{values} ON DUPLICATE KEY UPDATE repo = ref_log.repo", args


def rows_between(repo: str, kinds: frozenset[str], at: int, to: int, most: int | None) -> Statement:
    """The rows whose ids start with four bytes from `at` on, before `to`.

    Rows of other kinds are returned without data. If there are more than `most` rows, one more than
    that is returned.
    """
    value, args = "obj_value", [*sorted(kinds), repo]
    if kinds:
        value = f"CASE WHEN {sql.one_of('obj_type', args[:-1])} THEN obj_value END"
    where, bounds = "repo = ?", []
    if at:
        where += " AND obj_id >= ?"
        bounds.append(at.to_bytes(4, "big"))
    if to < 1 << 32:
        where += " AND obj_id < ?"
        bounds.append(to.to_bytes(4, "big"))
    limit = "" if most is None else f" LIMIT {most + 1}"
    columns = f"obj_id, obj_type, obj_vers, {value}, obj_ref"
    return f"SELECT {columns} FROM objs2 WHERE {where}{limit}", (*args, *bounds)


def largest_row_bytes(largest_bytes: int) -> int:
    """The most data of a row that fits into a statement of this size."""
    return max(1, (largest_bytes - _AROUND_ROW_BYTES) // 2)


def groups(rows: Sequence[Row], largest_bytes: int) -> Iterator[list[Row]]:
    """Groups of rows that fit into one statement. A row that does not fit at all is refused."""
    group: list[Row] = []
    room = largest_bytes
    for row in rows:
        needs = 2 * len(row.data) + _AROUND_ROW_BYTES
        if needs > largest_bytes:
            raise RequestTooLarge(
                f"A row of {len(row.data)} bytes is more than the database accepts; raise its"
                f" max_allowed_packet, which is {largest_bytes}, above {needs}"
            )
        if group and (needs > room or len(group) == sql.AT_ONCE):
            yield group
            group, room = [], largest_bytes
        group.append(row)
        room -= needs
    yield group

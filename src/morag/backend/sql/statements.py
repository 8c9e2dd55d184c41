"""Statements on the tables of Nessie's JDBC2 store, for all SQL engines.

Parameters are written `?`; an engine with another notation translates them. Names and columns are
Nessie's; `ref_log` is Morag's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from msgspec import Struct

from morag.backend.base import LogRow, ObjId, Ref, Row
from morag.backend.ordered_keys import id_range
from morag.errors import RepositoryCorrupt
from morag.format.damage import damaged_ref, damaged_row
from morag.format.refs import decode_previous, encode_previous
from morag.format.rows import NEVER_REFERENCED, UNREADABLE_KIND, without_referenced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from morag.backend.base import RefSwap, Slice

T = TypeVar("T")
Statement: TypeAlias = tuple[str, tuple[object, ...]]
"""A text and the values of its parameters."""

AT_ONCE: Final = 500
"""The most keys in one statement: every engine accepts this many parameters."""

UNLESS_THERE: Final = " ON CONFLICT DO NOTHING"
"""The end of an INSERT that does nothing if the key is stored already."""

_MOST: Final = 2**63 - 1
_REF: Final = "ref_name, pointer, ext_info, prev_ptr, created_at, deleted"
_ROW: Final = "obj_id, obj_type, obj_vers, obj_value, obj_ref"

INSERT_REF: Final = f"INSERT INTO refs2 (repo, {_REF}) VALUES (?, ?, ?, ?, ?, ?, ?){UNLESS_THERE}"
INSERT_ROW: Final = f"INSERT INTO objs2 (repo, {_ROW}) VALUES (?, ?, ?, ?, ?, ?){UNLESS_THERE}"
REFRESH_ROW: Final = "UPDATE objs2 SET obj_ref = ? WHERE repo = ? AND obj_id = ?"
DELETE_ROW: Final = "DELETE FROM objs2 WHERE repo = ? AND obj_id = ?"
ROW_EXISTS: Final = "SELECT 1 FROM objs2 WHERE repo = ? AND obj_id = ?"
APPEND_LOG: Final = f"INSERT INTO ref_log (repo, log_key, log_value) VALUES (?, ?, ?){UNLESS_THERE}"
ERASE: Final = tuple(f"DELETE FROM {name} WHERE repo = ?" for name in ("refs2", "objs2", "ref_log"))


class Keyed(Struct, frozen=True):
    """Columns of a table, which are looked up by the repository and one key."""

    table: str
    key: str
    columns: str


REFS: Final = Keyed("refs2", "ref_name", _REF)
ROWS: Final = Keyed("objs2", "obj_id", _ROW)
IDS: Final = Keyed("objs2", "obj_id", "obj_id")


def select(what: Keyed, repo: str, keys: Sequence[object]) -> Iterator[Statement]:
    for some in chunks(keys):
        where = f"repo = ? AND {one_of(what.key, some)}"
        yield f"SELECT {what.columns} FROM {what.table} WHERE {where}", (repo, *some)


def refresh_rows(repo: str, ids: Sequence[ObjId], micros: int) -> Iterator[Statement]:
    for some in chunks(ids):
        where = f"repo = ? AND {one_of('obj_id', some)}"
        yield f"UPDATE objs2 SET obj_ref = ? WHERE {where}", (micros, repo, *some)


def delete_rows(repo: str, ids: Sequence[ObjId]) -> Iterator[Statement]:
    for some in chunks(ids):
        yield f"DELETE FROM objs2 WHERE repo = ? AND {one_of('obj_id', some)}", (repo, *some)


def change_ref(repo: str, swap: RefSwap) -> Statement:
    """One statement that swaps; it changes one record if the expectation holds, otherwise none."""
    expected, new = swap.expected, swap.new
    if expected is None:
        assert new is not None, "the caller handles a swap of nothing for nothing"
        return INSERT_REF, ref_record(repo, new)
    same, same_args = _same_ref(repo, expected)
    if new is None:
        return f"DELETE FROM refs2 WHERE {same}", same_args
    columns = "pointer = ?, ext_info = ?, prev_ptr = ?, created_at = ?, deleted = ?"
    _, _, *values = ref_record(repo, new)
    return f"UPDATE refs2 SET {columns} WHERE {same}", (*values, *same_args)


def change_row(repo: str, expected: Row, new: Row | None) -> Statement:
    """One statement that swaps; it changes one record if the expectation holds, otherwise none."""
    same = "repo = ? AND obj_id = ? AND obj_type = ?"
    args: tuple[object, ...] = (repo, expected.id, expected.kind)
    if expected.version is None:
        same += " AND obj_vers IS NULL"
    else:
        same += " AND obj_vers = ?"
        args = (*args, expected.version)
    if new is None:
        return f"DELETE FROM objs2 WHERE {same}", args
    _, _, *values = row_record(repo, new)
    columns = "obj_type = ?, obj_vers = ?, obj_value = ?, obj_ref = ?"
    return f"UPDATE objs2 SET {columns} WHERE {same}", (*values, *args)


def scan_rows(
    repo: str, kinds: frozenset[str], part: Slice, after: ObjId | None, limit: int
) -> Statement:
    """The next rows of the part in the order of their ids, after the one read last."""
    low, high = id_range(part)
    where = ["repo = ?", "obj_id >= ?" if after is None else "obj_id > ?"]
    args: list[object] = [repo, low if after is None else after]
    if high is not None:
        where.append("obj_id < ?")
        args.append(high)
    if kinds:
        where.append(one_of("obj_type", sorted(kinds)))
        args += sorted(kinds)
    return (
        f"SELECT {_ROW} FROM objs2 WHERE {' AND '.join(where)} ORDER BY obj_id LIMIT ?",
        (*args, limit),
    )


def select_log(repo: str, before: bytes | None, limit: int) -> Statement:
    limit = min(limit, _MOST)
    columns, order = "SELECT log_key, log_value FROM ref_log", "ORDER BY log_key DESC LIMIT ?"
    if before is None:
        return f"{columns} WHERE repo = ? {order}", (repo, limit)
    return f"{columns} WHERE repo = ? AND log_key < ? {order}", (repo, before, limit)


def one_of(column: str, values: Sequence[object]) -> str:
    return f"{column} IN ({', '.join('?' * len(values))})"


def ref_record(repo: str, ref: Ref) -> tuple[object, ...]:
    return (
        repo,
        ref.name,
        ref.pointer,
        ref.extended_info,
        encode_previous(ref.previous),
        ref.created_micros or None,
        ref.deleted,
    )


def to_ref(record: Sequence[Any]) -> Ref:
    name, pointer, info, previous, created, deleted = record
    if not pointer:  # Nessie's column allows NULL, but every ref has a pointer.
        raise damaged_ref(name)
    return Ref(
        name,
        ObjId(pointer),
        bool(deleted),
        created or 0,
        None if info is None else ObjId(info),
        decode_previous(previous, name),
    )


def row_record(repo: str, row: Row) -> tuple[object, ...]:
    return repo, row.id, row.kind, row.version, row_value(row), row.referenced_micros


def row_identity(repo: str, row: Row) -> tuple[object, ...]:
    """The values that `delete_unreferenced` compares. A time of 0 may be stored as NULL."""
    return repo, row.id, row.kind, row.version, row.referenced_micros


def row_value(row: Row) -> bytes:
    return row.data + NEVER_REFERENCED


def to_row(record: Sequence[Any]) -> Row:
    id, kind, version, value, micros = record
    if not isinstance(
        value, bytes
    ):  # The column allows NULL, and SQLite stores values of any type.
        raise damaged_row(id)
    return Row(ObjId(id), kind, without_referenced(id, value), version, micros or 0)


def to_scanned_row(record: Sequence[Any], kinds: frozenset[str]) -> Row:
    """Like `to_row`, for a scan of these kinds: one of all kinds gives unreadable rows, too."""
    try:
        return to_row(record)
    except RepositoryCorrupt:
        if kinds:
            raise
    return Row(ObjId(record[0]), UNREADABLE_KIND, b"")


def to_log_row(record: Sequence[Any]) -> LogRow:
    key, value = record
    return LogRow(key, value)


def _same_ref(repo: str, ref: Ref) -> Statement:
    # A time of 0 is stored as NULL, and NULL equals nothing in SQL.
    same = (
        "repo = ? AND ref_name = ? AND pointer = ? AND deleted = ? AND coalesce(created_at, 0) = ?"
    )
    args = (repo, ref.name, ref.pointer, ref.deleted, ref.created_micros)
    if ref.extended_info is None:
        return f"{same} AND ext_info IS NULL", args
    return f"{same} AND ext_info = ?", (*args, ref.extended_info)


def chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(values), AT_ONCE):
        yield values[at : at + AT_ONCE]

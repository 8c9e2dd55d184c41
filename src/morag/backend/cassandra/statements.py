"""The tables in Cassandra, and the statements on them.

Names and columns are Nessie's; `ref_log` is Morag's own. In a statement, `$` stands for
the keyspace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cassandra.query import UNSET_VALUE
from msgspec import Struct

from morag.backend.sql import statements as sql
from morag.format.refs import encode_previous

if TYPE_CHECKING:
    from cassandra.metadata import TableMetadata

    from morag.backend.base import Ref, Row, Slice


class Table(Struct, frozen=True):
    """A table: its columns with their types, its partition key and its clustering key."""

    columns: dict[str, str]
    partition: tuple[str, ...]
    sorted_by: tuple[str, ...] = ()

    def cql(self, name: str) -> str:
        columns = ", ".join(f"{column} {kind}" for column, kind in self.columns.items())
        key = ", ".join((f"({', '.join(self.partition)})", *self.sorted_by))
        order = ", ".join(f"{column} DESC" for column in self.sorted_by)
        options = f" WITH CLUSTERING ORDER BY ({order})" if order else ""
        return f"CREATE TABLE IF NOT EXISTS {name} ({columns}, PRIMARY KEY ({key})){options}"

    def difference(self, found: TableMetadata) -> str:
        """The difference of an existing table; empty if it can be used."""
        partition = tuple(column.name for column in found.partition_key)
        sorted_by = tuple(column.name for column in found.clustering_key)
        if (partition, sorted_by) != (self.partition, self.sorted_by):
            return f"its key is {(partition, sorted_by)}, not {(self.partition, self.sorted_by)}"
        for name, kind in self.columns.items():
            if name not in found.columns:
                return f"it has no column '{name}'"
            if found.columns[name].cql_type != kind:
                return f"its column '{name}' is {found.columns[name].cql_type}, not {kind}"
        return ""


LOG: Final = "ref_log"
TABLES: Final = {
    "refs2": Table(
        {
            "repo": "text",
            "ref_name": "text",
            "pointer": "blob",
            "deleted": "boolean",
            "created_at": "bigint",
            "ext_info": "blob",
            "prev_ptr": "blob",
        },
        ("repo", "ref_name"),
    ),
    "objs2": Table(
        {
            "repo": "text",
            "obj_id": "blob",
            "obj_type": "text",
            "obj_vers": "text",
            "obj_value": "blob",
            "obj_ref": "bigint",
        },
        ("repo", "obj_id"),
    ),
    LOG: Table(
        {"repo": "text", "bucket": "blob", "log_key": "blob", "log_value": "blob"},
        ("repo", "bucket"),
        ("log_key",),
    ),
}
"""The tables of Nessie, and the log. Nessie creates no log, so a reader may find none."""

_REF: Final = sql.REFS.columns
_SAME_REF: Final = (
    "repo = ? AND ref_name = ? IF pointer = ? AND ext_info = ? AND created_at = ? AND deleted = ?"
)
READ_REF: Final = f"SELECT {_REF} FROM $.refs2 WHERE repo = ? AND ref_name = ?"
READ_REFS: Final = f"SELECT {_REF} FROM $.refs2 WHERE repo = ? AND ref_name IN ?"
ALL_REFS: Final = "SELECT ref_name FROM $.refs2 WHERE repo = ? ALLOW FILTERING"
INSERT_REF: Final = f"INSERT INTO $.refs2 (repo, {_REF}) VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"
MOVE_REF: Final = (
    "UPDATE $.refs2 SET pointer = ?, ext_info = ?, prev_ptr = ?, created_at = ?, deleted = ?"
    f" WHERE {_SAME_REF}"
)
DROP_REF: Final = f"DELETE FROM $.refs2 WHERE {_SAME_REF}"
ERASE_REF: Final = "DELETE FROM $.refs2 WHERE repo = ? AND ref_name = ? IF EXISTS"

_ROW: Final = sql.ROWS.columns
_ROW_KEY: Final = "repo = ? AND obj_id = ?"
_SAME_ROW: Final = f"{_ROW_KEY} IF obj_type = ? AND obj_vers = ?"
READ_ROW: Final = f"SELECT {_ROW} FROM $.objs2 WHERE {_ROW_KEY}"
READ_ROWS: Final = f"SELECT {_ROW} FROM $.objs2 WHERE repo = ? AND obj_id IN ?"
SCAN_ROWS: Final = (
    f"SELECT repo, {_ROW} FROM $.objs2 WHERE token(repo, obj_id) > ? AND token(repo, obj_id) <= ?"
)
ALL_ROWS: Final = "SELECT obj_id FROM $.objs2 WHERE repo = ? ALLOW FILTERING"
INSERT_ROW: Final = f"INSERT INTO $.objs2 (repo, {_ROW}) VALUES (?, ?, ?, ?, ?, ?) IF NOT EXISTS"
REFRESH_ROW: Final = f"UPDATE $.objs2 SET obj_ref = ? WHERE {_ROW_KEY} IF EXISTS"
CHANGE_ROW: Final = (
    f"UPDATE $.objs2 SET obj_type = ?, obj_vers = ?, obj_value = ?, obj_ref = ? WHERE {_SAME_ROW}"
)
DROP_ROW: Final = f"DELETE FROM $.objs2 WHERE {_SAME_ROW}"
DROP_UNREFERENCED: Final = f"{DROP_ROW} AND obj_ref = ?"
DELETE_ROW: Final = f"DELETE FROM $.objs2 WHERE {_ROW_KEY} IF EXISTS"

APPEND_LOG: Final = "INSERT INTO $.ref_log (repo, bucket, log_key, log_value) VALUES (?, ?, ?, ?)"
READ_LOG: Final = "SELECT log_key, log_value FROM $.ref_log WHERE repo = ? AND bucket = ?"
ERASE_LOG: Final = "DELETE FROM $.ref_log WHERE repo = ? AND bucket = ?"


def ref_values(ref: Ref) -> tuple[object, ...]:
    previous = encode_previous(ref.previous)
    return ref.pointer, ref.extended_info, previous, ref.created_micros, ref.deleted


def same_ref(repo: str, ref: Ref) -> tuple[object, ...]:
    return repo, ref.name, ref.pointer, ref.extended_info, ref.created_micros, ref.deleted


def set_values(repo: str, row: Row) -> list[object]:
    """The values of a row. An absent value is not bound as null, which would store a tombstone."""
    return [UNSET_VALUE if value is None else value for value in sql.row_record(repo, row)]


def tokens(part: Slice) -> tuple[int, int]:
    """The token before the part, and the last token in it, of all tokens of Murmur3."""
    assert 0 <= part.index < part.count, f"there is no part {part}"
    low, high = ((n << 64) // part.count - (1 << 63) for n in (part.index, part.index + 1))
    return low, min(high, (1 << 63) - 1)

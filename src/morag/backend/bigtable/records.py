"""Refs, rows and log lines as Bigtable stores them: keys, cells, and conditions on cells.

Keys, families and columns are Nessie's; the log is Morag's own. Every cell has the same timestamp:
with different ones, Bigtable would also keep older values, and conditions would see them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from google.cloud.bigtable_v2.types import Mutation, RowFilter, ValueRange

from morag.backend.base import LogRow, ObjId, Row
from morag.format.damage import damaged_row
from morag.format.refs import decode_ref, encode_ref
from morag.format.rows import NEVER_REFERENCED, decode_row

if TYPE_CHECKING:
    from morag.backend.base import Ref

Cells: TypeAlias = "dict[bytes, bytes]"
"""The cells of a row, by column."""

REFS: Final = "refs"
ROWS: Final = "objs"
LOG: Final = "ref_log"
FAMILIES: Final = {REFS: "r", ROWS: "o", LOG: "l"}
"""The tables, each with its one family."""

_TIME_MICROS: Final = 1_586_232_861_000
_REF: Final = b"r"
_DATA: Final = b"o"
_KIND: Final = b"t"
_VERSION: Final = b"V"
_REFERENCED: Final = b"z"
_LINE: Final = b"l"
_KINDS: Final = {
    "c": "COMMIT",
    "r": "REF",
    "v": "VALUE",
    "I": "INDEX_SEGMENTS",
    "i": "INDEX",
    "s": "STRING",
    "t": "TAG",
    "u": "UNIQUE",
    "j": "json",
    "c-e": "catalog-entity",
    "c-s": "catalog-snapshot",
    "lh-cfg": "lakehouse-config",
    "sig-keys": "signer-keys",
}
"""In Bigtable, and only there, Nessie writes the long name of a kind. Other kinds have the short
one."""

_INVERTED: Final = bytes(range(255, -1, -1))

NOTHING: Final = Mutation(delete_from_row=Mutation.DeleteFromRow())
"""Deletes the row."""


def log_key(key: bytes) -> bytes:
    """A key that sorts in reverse, so that the newest line comes first.

    The key ends with bytes that occur in no key: otherwise a key that is the start of another one
    would still come before it.
    """
    return (key.replace(b"\0", b"\0\1") + b"\0\0").translate(_INVERTED)


def log_row(key: bytes, cells: Cells) -> LogRow:
    return LogRow(key.translate(_INVERTED)[:-2].replace(b"\0\1", b"\0"), cells[_LINE])


def log_cells(row: LogRow) -> list[Mutation]:
    return [_set(LOG, _LINE, row.data)]


def ref_cells(ref: Ref) -> list[Mutation]:
    return [_set(REFS, _REF, encode_ref(ref))]


def to_ref(prefix: bytes, key: bytes, cells: Cells) -> Ref | None:
    """The ref, unless it belongs to a repository whose prefix starts with this one."""
    if _REF not in cells:
        return None
    ref = decode_ref(cells[_REF], key.decode(errors="replace"))
    return ref if key == prefix + ref.name.encode() else None


def row_cells(row: Row) -> list[Mutation]:
    cells = [
        _set(ROWS, _DATA, row.data + NEVER_REFERENCED),
        _set(ROWS, _KIND, _kind(row.kind)),
        refreshed(row.referenced_micros),
    ]
    if row.version is not None:
        cells.append(_set(ROWS, _VERSION, row.version.encode()))
    return cells


def refreshed(micros: int) -> Mutation:
    return _set(ROWS, _REFERENCED, b"%d" % micros)


def to_row(id: ObjId, cells: Cells) -> Row | None:
    """`None` if there is no data: refreshing a deleted row, Nessie leaves only a time."""
    if _DATA not in cells:
        return None
    row = decode_row(id, cells[_DATA])
    try:
        micros = int(cells.get(_REFERENCED, b"0"))
        version = cells[_VERSION].decode() if _VERSION in cells else None
    except ValueError as error:
        raise damaged_row(id) from error
    return Row(id, row.kind, row.data, version, micros)


def same_ref(ref: Ref) -> RowFilter:
    return _cell(REFS, _REF, encode_ref(ref))


def same_cell(cells: Cells) -> RowFilter:
    """The condition that the ref has the bytes that were read, including unknown fields."""
    return _cell(REFS, _REF, cells[_REF])


def same_row(row: Row) -> RowFilter:
    """The condition that the row has this kind and version, or no version."""
    if row.version is not None:
        version = _cell(ROWS, _VERSION, row.version.encode())
    else:
        version = _if(
            _cell(ROWS, _VERSION),
            then=RowFilter(block_all_filter=True),
            otherwise=RowFilter(pass_all_filter=True),
        )
    same_kind = _cell(ROWS, _KIND, _kind(row.kind))
    return _if(same_kind, then=version, otherwise=RowFilter(block_all_filter=True))


def unreferenced_row(row: Row) -> RowFilter:
    """The condition of `same_row`, and that the time is this one. An unknown one may be missing."""
    same_time = _cell(ROWS, _REFERENCED, b"%d" % row.referenced_micros)
    if not row.referenced_micros:
        same_time = _if(
            _cell(ROWS, _REFERENCED), then=same_time, otherwise=RowFilter(pass_all_filter=True)
        )
    return _if(same_row(row), then=same_time, otherwise=RowFilter(block_all_filter=True))


def _kind(short: str) -> bytes:
    return _KINDS.get(short, short).encode()


def _set(table: str, column: bytes, value: bytes) -> Mutation:
    cell = Mutation.SetCell(
        family_name=FAMILIES[table],
        column_qualifier=column,
        timestamp_micros=_TIME_MICROS,
        value=value,
    )
    return Mutation(set_cell=cell)


def _cell(table: str, column: bytes, value: bytes | None = None) -> RowFilter:
    """Passes the cell if it exists and has the value."""
    filters = [
        RowFilter(family_name_regex_filter=FAMILIES[table]),
        RowFilter(column_qualifier_regex_filter=column),
    ]
    if value is not None:
        exactly = ValueRange(start_value_closed=value, end_value_closed=value)
        filters.append(RowFilter(value_range_filter=exactly))
    return RowFilter(chain=RowFilter.Chain(filters=filters))


def _if(condition: RowFilter, then: RowFilter, otherwise: RowFilter) -> RowFilter:
    choice = RowFilter.Condition(
        predicate_filter=condition, true_filter=then, false_filter=otherwise
    )
    return RowFilter(condition=choice)


HAS_REF: Final = _cell(REFS, _REF)
HAS_ROW: Final = _cell(ROWS, _DATA)

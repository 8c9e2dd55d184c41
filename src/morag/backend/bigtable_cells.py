"""Refs, rows and log lines as Bigtable keeps them: keys, cells, and conditions on cells.

Keys, families and columns are those of the original; the log is ours alone. Every cell has the same
time: with another one, Bigtable would keep the older values too, and conditions would see them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from google.cloud.bigtable_v2.types import Mutation, RowFilter, ValueRange

from morag.backend.base import LogRow, ObjId, Row
from morag.backend.protos import (
    NEVER_REFERENCED,
    damaged_row,
    decode_ref,
    decode_row,
    encode_ref,
)

if TYPE_CHECKING:
    from morag.backend.base import Ref

Cells: TypeAlias = "dict[bytes, bytes]"
"""What a row of Bigtable holds, by column."""

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
"""The original writes a kind's long name here, and only here. What has none goes by its short."""

_INVERTED: Final = bytes(range(255, -1, -1))

NOTHING: Final = Mutation(delete_from_row=Mutation.DeleteFromRow())
"""Leaves nothing of a row."""


def log_key(key: bytes) -> bytes:
    """A key that sorts the other way round, so that the newest line comes first.

    Its end is marked, in a way that no key goes on: otherwise the shorter would still come first.
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
    """Nothing if there is no data: the original leaves a time when it refreshes what is gone."""
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
    """The same, of a ref as it was read: others may have written more into it than we know."""
    return _cell(REFS, _REF, cells[_REF])


def same_row(row: Row) -> RowFilter:
    """True for a row of this kind and version. Only a condition inside can ask for no version."""
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
    """Lets the cell pass, if it is there and has the value."""
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

"""The options of the format `morag`. This module does not need PySpark, so commands can use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.spark.errors import CannotRun
from morag.spark.opening import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE_OPTIONS: Final[dict[str, frozenset[str]]] = {
    "references": frozenset(),
    "entries": frozenset({"ref"}),
    "log": frozenset({"ref", "operations"}),
    "diff": frozenset({"from", "to"}),
    "reflog": frozenset(),
    "objects": frozenset(),
}
"""The tables of a catalog, each with the options that only it has."""

_OF_ALL_TABLES: Final = frozenset({"table", "partitions"})
_PARTITIONS: Final = 8
_MOST_PARTITIONS: Final = 100_000


class ReadOptions(Struct, frozen=True, kw_only=True):
    """`ref` is None for the default branch."""

    table: str
    partitions: int | None = None
    ref: str | None = None
    operations: bool = False
    from_ref: str = ""
    to_ref: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        table = table_of(options)
        refuse_unknown(f"Table '{table}'", options, _OF_ALL_TABLES | TABLE_OPTIONS[table])
        if table == "diff" and "from" not in options:
            raise CannotRun("Table 'diff' needs the option 'from', a branch, tag or commit")
        return cls(
            table=table,
            partitions=_partitions(options.get("partitions")),
            ref=options.get("ref"),
            operations=shows_operations(options),
            from_ref=options.get("from", ""),
            to_ref=options.get("to"),
        )

    @property
    def parts(self) -> int:
        """The maximum number of parts to cut a table into."""
        return self.partitions or _PARTITIONS


def refuse_unknown(what: str, options: Mapping[str, str], own: frozenset[str]) -> None:
    """Raise CannotRun for an option that would be ignored.

    `own` are the allowed options, in addition to those that name the catalog.
    """
    known = own | OPTIONS
    for name in options:
        if name.lower() not in known:
            raise CannotRun(f"{what} has no option '{name}'; it has: {', '.join(sorted(known))}")


def table_of(options: Mapping[str, str]) -> str:
    table = options.get("table", "entries")
    if table not in TABLE_OPTIONS:
        raise CannotRun(
            f"There is no table '{table}'; option 'table' is one of {', '.join(TABLE_OPTIONS)}"
        )
    return table


def columns_of(options: Mapping[str, str]) -> str:
    """The name of the table's schema in `schemas.TABLES`."""
    table = table_of(options)
    return "operations" if table == "log" and shows_operations(options) else table


def shows_operations(options: Mapping[str, str]) -> bool:
    text = options.get("operations", "false").lower()
    if text not in ("true", "false"):
        raise CannotRun(f"Option 'operations' must be true or false, not '{text}'")
    return text == "true"


def _partitions(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_PARTITIONS:
        raise CannotRun(
            f"Option 'partitions' must be a number from 1 to {_MOST_PARTITIONS}, not '{text}'"
        )
    return int(text)

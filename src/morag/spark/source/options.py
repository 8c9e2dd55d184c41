"""What a reader is told by options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.spark.errors import CannotRun
from morag.spark.source.offered import OFFERED
from morag.spark.source.schemas import TABLES
from morag.spark.source.unknown import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_ALL: Final = frozenset({"table", "partitions"})
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
        refuse_unknown(f"Table '{table}'", options, _OF_ALL | OFFERED[table])
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
        """Into how many parts to cut what can be cut evenly, at the most."""
        return self.partitions or _PARTITIONS


def table_of(options: Mapping[str, str]) -> str:
    table = options.get("table", "entries")
    if table not in OFFERED:
        raise CannotRun(
            f"There is no table '{table}'; option 'table' is one of {', '.join(OFFERED)}"
        )
    return table


def columns_of(options: Mapping[str, str]) -> str:
    """The name that the columns of the table go by."""
    table = table_of(options)
    name = "operations" if table == "log" and shows_operations(options) else table
    assert name in TABLES, "every table has columns"
    return name


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

"""The tables of Nessie's JDBC2 store: creates them, and checks existing ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import StoreUrlInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from morag.backend.sql.backend import Records
    from morag.backend.urls import StoreUrl

NAME: Final = "name"
ID: Final = "id"
BYTES: Final = "bytes"
TIME: Final = "time"
FLAG: Final = "flag"
KEY: Final = "key"

TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "refs2": {
        "repo": NAME,
        "ref_name": NAME,
        "pointer": ID,
        "ext_info": ID,
        "prev_ptr": BYTES,
        "created_at": TIME,
        "deleted": FLAG,
    },
    "objs2": {
        "repo": NAME,
        "obj_id": ID,
        "obj_type": NAME,
        "obj_vers": NAME,
        "obj_value": BYTES,
        "obj_ref": TIME,
    },
    "ref_log": {"repo": NAME, "log_key": KEY, "log_value": BYTES},
}
"""The kind of each column, in Nessie's order. The first two columns are the primary key.

`ref_log` is Morag's own: Nessie reads only its own tables.
"""


def create(table: str, types: Mapping[str, str], key_suffix: str = "") -> str:
    """The statement with which Nessie creates the table."""
    columns = [
        f"{name} {types[holds]}{' DEFAULT 0' if name == 'created_at' else ''}"
        for name, holds in TABLES[table].items()
    ]
    first, second = list(TABLES[table])[:2]
    suffix = key_suffix if TABLES[table][second] == ID else ""
    return f"CREATE TABLE {table} ({', '.join(columns)}, PRIMARY KEY ({first}, {second}{suffix}))"


class Found(Struct, frozen=True):
    """A table as the database describes it."""

    columns: dict[str, str] = {}
    key: list[str] = []

    @classmethod
    def all(cls, columns: Records, keys: Records) -> dict[str, Found]:
        """From records of table, column and type, and of table and column of the primary key."""
        tables: dict[str, Found] = {}
        for table, column, type in columns:
            tables.setdefault(table, cls()).columns[column] = type
        for table, column in keys:
            if table in tables:  # Otherwise it was created between the two queries.
                tables[table].key.append(column)
        return tables


def prepare(
    url: StoreUrl,
    look: Callable[[], Mapping[str, Found]],
    make: Callable[[str], None],
    types: Mapping[str, frozenset[str]],
) -> bool:
    """Create missing tables and check all; return whether there is a ref-log."""
    found = look()
    missing = [table for table in TABLES if table not in found]
    if url.read_only and {"refs2", "objs2"}.intersection(missing):
        raise StoreUrlInvalid(f"There is no catalog in '{url}'; start a server on it first")
    if missing and not url.read_only:
        for table in missing:
            make(table)
        found = look()
    for table in TABLES:
        if table in found:
            _check_columns(table, found[table], types)
        if not url.read_only:
            _check_use(url, table, found.get(table))
    return "ref_log" in found


def _check_columns(table: str, found: Found, types: Mapping[str, frozenset[str]]) -> None:
    """Refuse a table that differs from Nessie's. Additional columns are allowed."""
    for name, holds in TABLES[table].items():
        if name not in found.columns:
            raise _unfit(table, f"it has no column '{name}'")
        if found.columns[name] not in types[holds]:
            wanted = " or ".join(sorted(types[holds]))
            raise _unfit(table, f"its column '{name}' is {found.columns[name]}, not {wanted}")


def _check_use(url: StoreUrl, table: str, found: Found | None) -> None:
    """Checks for writers only: a read-only role cannot see primary keys."""
    if found is None:
        raise StoreUrlInvalid(
            f"There is a table '{table}' in '{url}' that this user cannot see; grant SELECT,"
            " INSERT, UPDATE and DELETE on it"
        )
    wanted_key = list(TABLES[table])[:2]
    if found.key != wanted_key:
        raise _unfit(table, f"its primary key is not ({', '.join(wanted_key)})")


def _unfit(table: str, why: str) -> StoreUrlInvalid:
    return StoreUrlInvalid(
        f"The table '{table}' in the database is not a catalog's: {why}; name another database or"
        " schema, or restore the table"
    )

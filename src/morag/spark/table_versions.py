"""The two versions of a table that a comparison of its rows needs. This does not need PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.errors import ContentNotFound
from morag.model.content import IcebergTable, type_name
from morag.spark.errors import CannotRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from morag.catalog import Catalog
    from morag.model.keys import ContentKey


def find_versions(
    catalog: Catalog, from_ref: str, to_ref: str, key: ContentKey
) -> tuple[IcebergTable | None, IcebergTable | None]:
    """The table on both refs; None where there is none. A table that was renamed is found by its
    new key."""
    old, new = _table(catalog, from_ref, key), _table(catalog, to_ref, key)
    if old is None and new is not None:
        old = _before_rename(catalog, from_ref, to_ref, new)
    if old is None and new is None:
        raise ContentNotFound(f"Neither '{from_ref}' nor '{to_ref}' has a table '{key}'", key)
    return old, new


def check_columns(
    tables: Iterable[IcebergTable | None], columns: Sequence[str], files: Mapping[str, str]
) -> None:
    """Raise CannotRun for a column that none of the tables has."""
    # Imported here, because PyIceberg takes longer than everything else in this module.
    from morag.spark.content_state import table_metadata
    from morag.spark.files import Files

    known: set[str] = set()
    for table in tables:
        if table is not None:
            metadata = table_metadata(table, Files(dict(files)))
            schema = metadata.schema_by_id(table.schema_id) or metadata.schema()
            known.update(schema.column_names)
    missing = sorted(set(columns) - known)
    if missing:
        raise CannotRun(f"Rows cannot be identified by {missing}: the table has no such column")


def _table(catalog: Catalog, ref: str, key: ContentKey) -> IcebergTable | None:
    try:
        content = catalog.contents.get(ref, key)
    except ContentNotFound:
        return None
    if not isinstance(content, IcebergTable):
        raise CannotRun(f"'{key}' on '{ref}' is of type {type_name(content)} and has no rows")
    return content


def _before_rename(
    catalog: Catalog, from_ref: str, to_ref: str, table: IcebergTable
) -> IcebergTable | None:
    for each in catalog.contents.diff(from_ref, to_ref):
        if isinstance(each.before, IcebergTable) and each.before.id == table.id:
            return each.before
    return None

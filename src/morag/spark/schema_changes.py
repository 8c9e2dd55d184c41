"""Describes the changes of a table's columns in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.types import ListType, MapType, PrimitiveType, StructType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType, NestedField


def schema_changes(before: Schema, after: Schema) -> list[str]:
    """One line per change. Columns are identified by their ids, as in Iceberg.

    So a rename is reported as a rename, and a column that was dropped and created again as both.
    Changes inside of an added or dropped column are not reported separately.
    """
    return [*_dropped(before, after), *_added(before, after), *_changed(before, after)]


def _dropped(before: Schema, after: Schema) -> Iterator[str]:
    for id in _topmost(before, after):
        yield f"dropped {_name(before, id)} {before.find_field(id).field_type}"


def _added(before: Schema, after: Schema) -> Iterator[str]:
    for id in _topmost(after, before):
        field = after.find_field(id)
        yield f"added {_name(after, id)} {field.field_type}{' required' if field.required else ''}"


def _changed(before: Schema, after: Schema) -> Iterator[str]:
    for id in sorted(before.field_ids & after.field_ids):
        old, new = before.find_field(id), after.find_field(id)
        name = _name(after, id)
        if old.name != new.name:
            yield f"renamed {_name(before, id)} to {name}"
        if _shape(old) != _shape(new):
            yield f"changed {name} from {old.field_type} to {new.field_type}"
        if old.required != new.required:
            yield f"made {name} {'required' if new.required else 'optional'}"
        if old.doc != new.doc:
            yield f"described {name}: {new.doc or 'nothing'}"
    for parent, order in _orders(after).items():
        old_order = _orders(before).get(parent, [])
        shared = set(old_order) & set(order)
        if [id for id in old_order if id in shared] != [id for id in order if id in shared]:
            inside = f" of {_name(after, parent)}" if parent is not None else ""
            yield f"reordered columns{inside}"
    old_key, new_key = before.identifier_field_names(), after.identifier_field_names()
    if set(before.identifier_field_ids) != set(after.identifier_field_ids):
        yield f"identified rows by {_names(new_key)} instead of {_names(old_key)}"


def _topmost(one: Schema, other: Schema) -> Iterator[int]:
    """Columns that only `one` has, without the columns inside of them."""
    missing = one.field_ids - other.field_ids
    nested = {inner.field_id for id in missing for inner in _inside(one.find_field(id).field_type)}
    yield from sorted(missing - nested)


def _shape(field: NestedField) -> str:
    """The type of the column itself: columns inside of it are reported separately."""
    type = field.field_type
    return str(type) if isinstance(type, PrimitiveType) else type.__class__.__name__


def _orders(schema: Schema) -> dict[int | None, list[int]]:
    """The columns of each struct, in their order, by the column that holds the struct."""
    orders: dict[int | None, list[int]] = {None: [field.field_id for field in schema.fields]}
    for id in sorted(schema.field_ids):
        type = schema.find_field(id).field_type
        if isinstance(type, StructType):
            orders[id] = [field.field_id for field in type.fields]
    return orders


def _inside(type: IcebergType) -> tuple[NestedField, ...]:
    match type:
        case StructType():
            return type.fields
        case ListType():
            return (type.element_field,)
        case MapType():
            return (type.key_field, type.value_field)
        case _:
            return ()


def _name(schema: Schema, id: int) -> str:
    return schema.find_column_name(id) or f"#{id}"


def _names(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"

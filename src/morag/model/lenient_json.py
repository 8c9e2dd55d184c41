"""Converts JSON values to a type as leniently as Nessie's JSON library does.

A number may be given as a text or with a fraction, and null or a blank text is zero. A text may be
given as a number or a boolean, a boolean as a number, a member of an enum as its index. A list or
map that is null counts as absent.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
from msgspec import inspect

if TYPE_CHECKING:
    from collections.abc import Hashable
    from enum import Enum

T = TypeVar("T")

_INT64: Final = 1 << 63


def converted(value: Any, type: type[T]) -> T:
    """Raises msgspec.ValidationError for a value that Nessie could not read, either."""
    return msgspec.convert(_as(value, _described(cast("Hashable", type))), type, strict=False)


@lru_cache
def _described(type: Hashable) -> inspect.Type:
    return inspect.type_info(type)


def _as(value: Any, wanted: inspect.Type) -> Any:
    wanted = _bare(wanted)
    if isinstance(wanted, inspect.UnionType):
        return _as_one_of(value, wanted)
    if isinstance(wanted, inspect.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field for field in wanted.fields}
        return {
            name: _as(item, fields[name].type) if name in fields else item
            for name, item in value.items()
            if item is not None or not _is_left_out(fields.get(name))
        }
    if isinstance(wanted, inspect.VarTupleType | inspect.ListType) and isinstance(value, list):
        return [_as(item, wanted.item_type) for item in value]
    if isinstance(wanted, inspect.DictType) and isinstance(value, dict):
        return {name: _as(item, wanted.value_type) for name, item in value.items()}
    match wanted:
        case inspect.StrType():
            return _text(value)
        case inspect.IntType():
            return _number(value)
        case inspect.BoolType() if type(value) is int:
            return value != 0
        case inspect.EnumType():
            return _member(value, wanted.cls)
    return value


def _as_one_of(value: Any, wanted: inspect.UnionType) -> Any:
    """The tag selects one of several structs. Other unions are a type and null, and a blank text is
    null if the type is a number or a boolean."""
    for one in map(_bare, wanted.types):
        if isinstance(one, inspect.NoneType):
            if value is None:
                return None
        elif isinstance(one, inspect.IntType | inspect.BoolType) and _is_blank(value):
            return None
        elif not isinstance(one, inspect.StructType) or _is_tagged(value, one):
            return _as(value, one)
    return value


def _bare(wanted: inspect.Type) -> inspect.Type:
    """The type without its documentation."""
    while isinstance(wanted, inspect.Metadata):
        wanted = wanted.type
    return wanted


def _is_tagged(value: Any, struct: inspect.StructType) -> bool:
    if struct.tag_field is None:
        return True
    return isinstance(value, dict) and value.get(struct.tag_field) == struct.tag


def _is_left_out(field: inspect.Field | None) -> bool:
    """Whether null means that the field is absent: it has a default."""
    return field is not None and not field.required


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _number(value: Any) -> Any:
    if isinstance(value, float) and abs(value) < _INT64:
        return int(value)
    return 0 if value is None or _is_blank(value) else value


def _member(value: Any, members: type[Enum]) -> Any:
    """The value of an enum's member, which may be given by its index."""
    text = value.strip() if isinstance(value, str) else value
    index = int(text) if isinstance(text, str) and text.isdecimal() else text
    if type(index) is int and 0 <= index < len(members):
        return list(members)[index].value
    return text


def _is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()

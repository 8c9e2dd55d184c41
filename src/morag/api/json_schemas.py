"""JSON schemas of request and response bodies, generated from the structs."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import NODEFAULT
from msgspec.inspect import (
    DictType,
    ListType,
    Metadata,
    StructType,
    UnionType,
    VarTupleType,
    multi_type_info,
)

from morag.model.content import Content
from morag.rest.marks import ALWAYS_SENT, NEEDED, SET_BY_SERVER
from morag.rest.requests import ReferenceBody

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from msgspec import Meta
    from msgspec.inspect import Field, Type

Schema: TypeAlias = dict[str, Any]

_REF: Final = "#/components/schemas/{name}"
_NULL: Final = {"type": "null"}
_UNIONS: Final[Mapping[str, Any]] = {"Content": Content, "ReferenceBody": ReferenceBody}
"""Unions with a schema of their own: msgspec has no names for unions."""
_EMPTY: Final = (list, dict, set)
_QUOTED: Final = re.compile(r"`(\w+)`")


class Schemas:
    """Schemas of types, with the components that they refer to.

    Clients may leave out a field with a default, but the server may always send it. So the schema
    of a struct that only occurs in responses describes exactly the fields that are sent. A struct
    that also occurs in requests is described as clients may send it.
    """

    def __init__(self, taken: Sequence[Any], given: Sequence[Any]) -> None:
        kinds = [*taken, *given, *_UNIONS.values()]
        schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
        _, shared = msgspec.json.schema_components(taken, ref_template=_REF)
        structs: dict[str, StructType] = {}
        for info in multi_type_info(kinds):
            _find_structs(info, structs)
        for name, struct in structs.items():
            _describe(components[name], struct)
            if name in shared:
                _as_taken(components[name], struct)
            else:
                _as_sent(components[name], struct)
        unions = dict(zip(_UNIONS, schemas[-len(_UNIONS) :], strict=True))
        self.components: dict[str, Schema] = {
            name: _with_unions(schema, unions) for name, schema in sorted(components.items())
        }
        self.components |= unions
        self._kinds = kinds
        self._schemas: list[Schema] = [_with_unions(schema, unions) for schema in schemas]

    def of(self, kind: Any) -> Schema:
        return self._schemas[self._kinds.index(kind)]


def _find_structs(info: Type, found: dict[str, StructType]) -> None:
    match info:
        case Metadata():
            _find_structs(info.type, found)
        case StructType() if info.cls.__name__ not in found:
            found[info.cls.__name__] = info
            for field in info.fields:
                _find_structs(field.type, found)
        case UnionType():
            for one in info.types:
                _find_structs(one, found)
        case ListType() | VarTupleType():
            _find_structs(info.item_type, found)
        case DictType():
            _find_structs(info.value_type, found)


def _describe(schema: Schema, struct: StructType) -> None:
    """The docstring, with the JSON names of the fields that it mentions."""
    if "description" in schema:
        wire = {field.name: field.encode_name for field in struct.fields}
        text = inspect.cleandoc(schema["description"])
        schema["description"] = _QUOTED.sub(lambda word: f"`{wire.get(word[1], word[1])}`", text)


def _as_taken(schema: Schema, struct: StructType) -> None:
    """Apply the marks on fields that clients send."""
    properties = schema["properties"]
    for field in struct.fields:
        name = field.encode_name
        if _is_marked(field, NEEDED):
            properties[name] = _without_null(properties[name])
            properties[name].pop("default", None)
            if properties[name].get("type") == "array":
                properties[name]["minItems"] = 1
            schema["required"].append(name)
        elif _is_marked(field, SET_BY_SERVER):
            _allow_empty_only(properties[name])


def _as_sent(schema: Schema, struct: StructType) -> None:
    properties, required = schema["properties"], set(schema["required"])
    for field in struct.fields:
        property = properties[field.encode_name]
        property.pop("default", None)
        always_sent = _is_marked(field, ALWAYS_SENT)
        left_out = _may_be_left_out(field, struct.cls.__struct_config__.omit_defaults)
        if always_sent or not left_out:
            required.add(field.encode_name)
        if always_sent or (left_out and field.default is None):
            properties[field.encode_name] = _without_null(property)
    schema["required"] = [name for name in properties if name in required]


def _is_marked(field: Field, mark: Meta) -> bool:
    return isinstance(field.type, Metadata) and field.type.extra == mark.extra


def _allow_empty_only(schema: Schema) -> None:
    is_list = any(option.get("type") == "array" for option in schema.pop("anyOf"))
    schema |= {"type": ["array", "null"], "maxItems": 0} if is_list else _NULL


def _may_be_left_out(field: Field, omit_defaults: bool) -> bool:
    if field.required:
        return False
    if field.default is NODEFAULT and field.default_factory is NODEFAULT:
        return True  # UNSET: the field is left out.
    return omit_defaults and (field.default is not NODEFAULT or field.default_factory in _EMPTY)


def _without_null(schema: Schema) -> Schema:
    if "anyOf" not in schema:
        return schema
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    options = [option for option in schema["anyOf"] if option != _NULL]
    return rest | (options[0] if len(options) == 1 else {"anyOf": options})


def _with_unions(schema: Any, unions: Mapping[str, Schema]) -> Any:
    """The schema, with references in the place of unions that have a schema of their own."""
    if isinstance(schema, list):
        return [_with_unions(item, unions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    bare = {key: value for key, value in schema.items() if key != "description"}
    for name, union in unions.items():
        if bare == union:
            text = {key: schema[key] for key in schema.keys() - bare.keys()}
            return {"$ref": _REF.format(name=name), **text}
    return {key: _with_unions(value, unions) for key, value in schema.items()}

"""JSON schemas of what clients send and see, made from the structs themselves."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import NODEFAULT
from msgspec.inspect import DictType, ListType, StructType, UnionType, VarTupleType, multi_type_info

from morag.api.bodies import ReferenceBody
from morag.api.meanings import OF_FIELDS
from morag.model.content import Content

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from msgspec.inspect import Field, Type

Schema: TypeAlias = dict[str, Any]

_REF: Final = "#/components/schemas/{name}"
_NULL: Final = {"type": "null"}
_UNIONS: Final[Mapping[str, Any]] = {"Content": Content, "ReferenceBody": ReferenceBody}
"""Unions that are told once and referred to. A union has no name that could be found out."""
_NEEDED: Final[Mapping[str, str]] = {
    "BranchBody": "hash",
    "CommitBody": "operations",
    "KeysBody": "requestedKeys",
    "MergeBody": "fromHash",
    "TagBody": "hash",
    "TransplantBody": "hashesToTransplant",
    "TransplantBodyV1": "hashesToTransplant",
}
"""Fields that no call does without, although the structs do: the message about it is the call's."""
_SET_BY_SERVER: Final = ("hash", "committer", "commitTime", "parentCommitHashes")
"""Fields of commit metadata that a client may only send empty."""
_FORMATS: Final[Mapping[str, str]] = {
    "snapshotId": "int64",
    "versionId": "int64",
    "schemaId": "int32",
    "specId": "int32",
    "sortOrderId": "int32",
    "expectedFileCountPerContent": "int32",
    "authorTime": "date-time",
    "commitTime": "date-time",
}
_TYPE_OF: Final = {"int64": "integer", "int32": "integer", "date-time": "string"}
_OF_REQUESTS: Final = frozenset({"morag.api.bodies", "morag.model.operations"})
"""Where the structs are whose fields have the meanings of `meanings.py`."""
_EMPTY: Final = (list, dict, set)
_QUOTED: Final = re.compile(r"`(\w+)`")


class Schemas:
    """Schemas of types, with the components that they refer to.

    A field that has a default may be left out by a client, but that does not say whether we leave
    it out. So what is only ever given says exactly what is sent; what is also taken says the less.
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
            if name not in shared:
                _as_sent(components[name], struct)
        for name, needed in _NEEDED.items():
            _demand(components[name], needed)
        for name in _SET_BY_SERVER:
            _forbid(components["CommitMetaBody"]["properties"][name])
        unions = dict(zip(_UNIONS, schemas[-len(_UNIONS) :], strict=True))
        self.components: dict[str, Schema] = {
            name: _with_unions(schema, unions) for name, schema in sorted(components.items())
        }
        self.components |= unions
        for name, struct in structs.items():
            if struct.cls.__module__ in _OF_REQUESTS:
                _explain(self.components[name])
        self._kinds = kinds
        self._schemas: list[Schema] = [_with_unions(schema, unions) for schema in schemas]

    def of(self, kind: Any) -> Schema:
        return self._schemas[self._kinds.index(kind)]


def _find_structs(info: Type, found: dict[str, StructType]) -> None:
    match info:
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
    """Formats, and the docstring, with fields that it names as they are sent."""
    for name, property in schema["properties"].items():
        format = _FORMATS.get(name, "")
        for option in property.get("anyOf", (property,)):
            if format and option.get("type") == _TYPE_OF[format]:
                option["format"] = format
    if "description" in schema:
        wire = {field.name: field.encode_name for field in struct.fields}
        text = inspect.cleandoc(schema["description"])
        schema["description"] = _QUOTED.sub(lambda word: f"`{wire.get(word[1], word[1])}`", text)


def _explain(schema: Schema) -> None:
    for name, property in schema["properties"].items():
        if name in OF_FIELDS:
            property.setdefault("description", OF_FIELDS[name])


def _as_sent(schema: Schema, struct: StructType) -> None:
    properties, required = schema["properties"], set(schema["required"])
    for field in struct.fields:
        property = properties[field.encode_name]
        property.pop("default", None)
        if not _may_be_left_out(field, struct.cls.__struct_config__.omit_defaults):
            required.add(field.encode_name)
        elif field.default is None:  # Left out instead.
            properties[field.encode_name] = _without_null(property)
    schema["required"] = [name for name in properties if name in required]


def _demand(schema: Schema, name: str) -> None:
    property = _without_null(schema["properties"][name])
    if property["type"] == "array":
        property["minItems"] = 1
    schema["properties"][name] = property
    schema["required"].append(name)


def _forbid(schema: Schema) -> None:
    is_list = any(option.get("type") == "array" for option in schema.pop("anyOf"))
    schema |= {"type": ["array", "null"], "maxItems": 0} if is_list else _NULL
    schema["description"] = "Set by the server."


def _may_be_left_out(field: Field, omit_defaults: bool) -> bool:
    if field.required:
        return False
    if field.default is NODEFAULT and field.default_factory is NODEFAULT:
        return True  # UNSET, which is how a field is left out one by one.
    return omit_defaults and (field.default is not NODEFAULT or field.default_factory in _EMPTY)


def _without_null(schema: Schema) -> Schema:
    options = [option for option in schema.get("anyOf", ()) if option != _NULL]
    return options[0] if len(options) == 1 else {"anyOf": options}


def _with_unions(schema: Any, unions: Mapping[str, Schema]) -> Any:
    """The schema, with references where it spells a union out that has a name."""
    if isinstance(schema, list):
        return [_with_unions(item, unions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    for name, union in unions.items():
        if schema == union:
            return {"$ref": _REF.format(name=name)}
    return {key: _with_unions(value, unions) for key, value in schema.items()}

"""Messages as tables of fields: encoder and decoder of a message come from one table.

A table lists the fields in the order of their numbers, which is the order in which they are
written. Equal messages therefore have equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from morag.protobuf import BYTES_TYPE, HEADS, VARINT_TYPE, tag_of, tagged_fields, varint

T = TypeVar("T")

VARINT_PATTERN: Final = rb"([\x80-\xff]*+[\x00-\x7f])"
"""A regular expression for the bytes of one number, as a group."""


class Presence(Enum):
    """When a field is written, and how a message without it is read."""

    UNLESS_ZERO = 1
    """Written unless it is zero, false or empty; if absent, read as zero, false or empty."""
    ALWAYS = 2
    """Always written; if absent, read as zero, false or empty."""
    REQUIRED = 3
    """Always written; a message without it cannot be read."""
    OPTIONAL = 4
    """Written unless it is None; if absent, read as None."""
    REPEATED = 5
    """Written once for each item; read as a collection of the items."""


ALWAYS, REQUIRED, OPTIONAL, REPEATED = (
    Presence.ALWAYS,
    Presence.REQUIRED,
    Presence.OPTIONAL,
    Presence.REPEATED,
)


class FieldType(Struct, frozen=True, kw_only=True):
    """The type of a field, with the Python expressions that write and read it.

    `write` gives the bytes of the field, including its tag, from `{tag}`, `{number}` and `{value}`,
    and from `{heads}`, the heads of fields with this number (`protobuf.FieldHeads`).
    `write_all` does so for all items of a repeated field at once, where that is faster. `read`
    gives the value from `{value}`, an unsigned number or bytes, depending on `wire_type`. The
    expressions may use `names`.
    """

    wire_type: int
    write: str
    read: str = "{value}"
    zero: Any = None
    write_all: str = ""
    collect: Callable[[list[Any]], Any] = tuple
    names: dict[str, Callable[..., Any]] = {}


class Field(Struct, frozen=True):
    """`name` is an attribute of the encoded struct, and an argument to build the decoded one."""

    number: int
    name: str
    type: FieldType
    presence: Presence = Presence.UNLESS_ZERO

    @property
    def tag(self) -> int:
        return tag_of(self.number, self.type.wire_type)

    @property
    def tag_bytes(self) -> bytes:
        return varint(self.tag)


class Message(Generic[T]):
    """The encoder and decoder of a message with these fields. `make` builds the decoded value.

    `decode` passes the arguments in `given` on to `make`. A field that is not in the table is
    refused, because it would be lost when the message is written again. With `ignores_unknown` it
    is ignored, for messages that are known to hold more.
    """

    def __init__(
        self,
        make: Callable[..., T],
        *fields: Field,
        given: tuple[str, ...] = (),
        ignores_unknown: bool = False,
    ) -> None:
        self.fields: Final = {field.name: field for field in fields}
        self.encode: Final[Callable[[Any], bytes]] = _encoder(fields)
        self.decode: Final[Callable[..., T]] = _decoder(make, fields, given, ignores_unknown)


# Encoders and decoders are compiled from the tables into the code that one would write by hand.
# Interpreting the table for each message would be slower, most of all for short messages.


def _encoder(fields: tuple[Field, ...]) -> Callable[[Any], bytes]:
    """A function that encodes a struct. For field 1, an optional text, it has these lines:

    name = _struct.name
    return b"".join((
        b"" if name is None else _heads_1[len(_bytes := name.encode())] + _bytes,
        ...
    ))
    """
    names: dict[str, Any] = {"varint": varint}
    for field in fields:
        names |= field.type.names
        names[f"_heads_{field.number}"] = HEADS[field.number]
    lines = [
        "def encode(_struct):",
        *(f"    {field.name} = _struct.{field.name}" for field in fields),
        "    return b''.join((",
        *(f"        {_written(field)}," for field in fields),
        "    ))",
    ]
    exec("\n".join(lines), names)
    encode: Callable[[Any], bytes] = names["encode"]
    return encode


def _written(field: Field) -> str:
    name, field_type = field.name, field.type
    known = {
        "tag": repr(field.tag_bytes),
        "number": field.number,
        "heads": f"_heads_{field.number}",
    }
    write = field_type.write.format(value=name, **known)
    match field.presence:
        case Presence.UNLESS_ZERO:
            return f"{write} if {name} else b''"
        case Presence.OPTIONAL:
            return f"b'' if {name} is None else {write}"
        case Presence.REPEATED if field_type.write_all:
            return f"{field_type.write_all.format(value=name, **known)} if {name} else b''"
        case Presence.REPEATED:
            return f"*[{field_type.write.format(value='_item', **known)} for _item in {name} or ()]"
        case _:
            return write


def _decoder(
    make: Callable[..., T], fields: tuple[Field, ...], given: tuple[str, ...], ignores_unknown: bool
) -> Callable[..., T]:
    """A function that decodes bytes; its other arguments are fields that are already decoded:

    for _tag, _value in _fields(_data):
        if _tag == 10:
            name = _value.decode()
        ...
    return _make(name=name, ...)
    """
    known = frozenset(field.number for field in fields)

    def check(tag: int) -> None:
        if tag >> 3 in known:
            raise wrong_wire_type(tag)
        if not ignores_unknown:
            raise ValueError(f"field {tag >> 3} is not known")

    names: dict[str, Any] = {"_fields": tagged_fields, "_make": make, "_check": check}
    parameters, made = ["_data", *given], [f"{name}={name}" for name in given]
    reads: list[str] = []
    checks: list[str] = []
    for field in fields:
        name, number, field_type = field.name, field.number, field.type
        names |= field_type.names
        names[f"_absent_{number}"], names[f"_collect_{number}"] = _absent(field), field_type.collect
        parameters.append(f"{name}=_absent_{number}")
        is_repeated, read = field.presence is REPEATED, field_type.read.format(value="_value")
        reads += [
            f"        {'elif' if reads else 'if'} _tag == {field.tag}:",
            f"            {name}.append({read})" if is_repeated else f"            {name} = {read}",
        ]
        if field.presence is REQUIRED:
            checks += [
                f"    if {name} is _absent_{number}:",
                f"        raise ValueError('field {number} is missing')",
            ]
        made.append(f"{name}=_collect_{number}({name})" if is_repeated else f"{name}={name}")
    lines = [
        f"def decode({', '.join(parameters)}):",
        *(f"    {field.name} = [*{field.name}]" for field in fields if field.presence is REPEATED),
        "    for _tag, _value in _fields(_data):",
        *reads,
        "        else:",
        "            _check(_tag)",
        *checks,
        f"    return _make({', '.join(made)})",
    ]
    exec("\n".join(lines), names)
    decode: Callable[..., T] = names["decode"]
    return decode


def _absent(field: Field) -> Any:
    match field.presence:
        case Presence.REPEATED:
            return ()
        case Presence.OPTIONAL:
            return None
        case Presence.REQUIRED:
            return object()
        case _:
            return field.type.zero


def wrong_wire_type(tag: int) -> ValueError:
    stands = (
        "a number stands where bytes belong"
        if tag & 7 == VARINT_TYPE
        else "bytes stand where a number belongs"
    )
    return ValueError(f"field {tag >> 3}: {stands}")


def sized_tag(field: Field, size: int) -> bytes:
    """The tag and the size of a field that holds `size` bytes."""
    return field.tag_bytes + varint(size)


def int64(value: int) -> int:
    if value >> 63:
        if value >> 64:
            raise ValueError("a number takes more than 64 bits")
        value -= 1 << 64
    return value


def int32(value: int) -> int:
    low = int64(value) & 0xFFFF_FFFF
    return low - (1 << 32) if low >> 31 else low


_NUMBER: Final = "{tag} + varint({value})"
_BYTES: Final = "{heads}[len({value})] + {value}"

INT64: Final = FieldType(
    wire_type=VARINT_TYPE, write=_NUMBER, read="int64({value})", zero=0, names={"int64": int64}
)
INT32: Final = FieldType(
    wire_type=VARINT_TYPE, write=_NUMBER, read="int32({value})", zero=0, names={"int32": int32}
)
BOOL: Final = FieldType(wire_type=VARINT_TYPE, write=_NUMBER, read="bool({value})", zero=False)
BYTES: Final = FieldType(wire_type=BYTES_TYPE, write=_BYTES, zero=b"")
ID: Final = BYTES
"""The id of an object."""
TEXT: Final = FieldType(
    wire_type=BYTES_TYPE,
    write="{heads}[len(_bytes := {value}.encode())] + _bytes",
    read="{value}.decode()",
    zero="",
)


def enumerated(kind: type[Enum], zero: Enum | None = None) -> FieldType:
    return FieldType(
        wire_type=VARINT_TYPE,
        write="{tag} + varint({value}._value_)",  # `value` is a property, which takes longer.
        read=f"{kind.__name__}({{value}})",
        zero=zero,
        names={kind.__name__: kind},
    )


def nested(
    name: str, write: Callable[[int, Any], bytes], read: Callable[[bytes], Any], **more: Any
) -> FieldType:
    """A message inside another. `write` takes the number of the field and the value to encode."""
    return FieldType(
        wire_type=BYTES_TYPE,
        write=f"write_{name}({{number}}, {{value}})",
        read=f"read_{name}({{value}})",
        names={f"write_{name}": write, f"read_{name}": read},
        **more,
    )

"""Pointers between stored objects: what each must find, in a form that is joined by ids.

A whole store has too many pointers to follow each one. A check writes down all objects that are
there (`Present`) and all pointers (`Pointer`) as bytes of fixed size, joins them by id on Spark or
in a temporary database, and judges each pair.
"""

from __future__ import annotations

from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from uuid import UUID

from msgspec import Struct

from morag.format.ids import ID_BYTES
from morag.format.index_entries import content_id_of, payload_of
from morag.format.records import ObjId
from morag.logic.findings import REFERENCE, Finding, kind_name

if TYPE_CHECKING:
    from morag.format.objects import Value

DETAIL_BYTES: Final = 17
ANY: Final = bytes(DETAIL_BYTES)
PRESENT_BYTES: Final = ID_BYTES + 1 + DETAIL_BYTES
POINTER_BYTES: Final = 2 * ID_BYTES + 1 + DETAIL_BYTES

DAMAGED: Final = "!"
"""The kind of an object that is there, but cannot be read. Pointers to it are no findings."""
NOT_UNDERSTOOD: Final = "?"
"""The kind of objects whose kind Morag does not know."""


class Role(Enum):
    """The part that an object has for the one that points to it, and the kinds that it may have."""

    PARENT = ("p", "parent", "c")
    MERGE_PARENT = ("m", "merge parent", "c")
    REFERENCE_INDEX = ("x", "reference index", "iI")
    STRIPE = ("s", "stripe", "i")
    VALUE = ("v", "value", "v")
    RECORD = ("r", "record", "rs")
    """The value of a key that is not a content key: a reference, a description, a config."""
    HEAD = ("h", "head", "c")
    TAG = ("t", "tag note", "t")
    CREATION = ("n", "record", "r")
    """The record of a creation, which must have the time and the tag note of the ref."""

    def __init__(self, letter: str, words: str, kinds: str) -> None:
        self.letter = letter
        self.words = words
        self.kinds = kinds


ROLES: Final = {role.letter: role for role in Role}


class Present(Struct, frozen=True, gc=False):
    """An object that is stored. `detail` is what pointers to it may also state."""

    id: ObjId
    kind: str
    detail: bytes = ANY

    def packed(self) -> bytes:
        return self.id + self.kind.encode() + self.detail


class Pointer(Struct, frozen=True, gc=False):
    """`detail` starts with a byte and ends with 16 more; zeros of either part match anything."""

    target: ObjId
    source: ObjId
    role: Role
    detail: bytes = ANY

    def packed(self) -> bytes:
        return b"".join((self.target, self.source, self.role.letter.encode(), self.detail))

    @classmethod
    def unpacked(cls, data: bytes) -> Pointer:
        source_end = 2 * ID_BYTES
        return cls(
            ObjId(data[:ID_BYTES]),
            ObjId(data[ID_BYTES:source_end]),
            ROLES[chr(data[source_end])],
            data[source_end + 1 :],
        )


def entry_detail(op: bytes) -> bytes:
    """The statement of an index entry about its value: the type and the content id."""
    return bytes([payload_of(op)]) + content_id_of(op)


def value_detail(value: Value) -> bytes:
    """The same of the value itself. Content ids that are not UUIDs are not in index entries."""
    try:
        id = UUID(value.content_id)
    except ValueError:
        return bytes([value.payload]) + bytes(16)
    same = str(id) == value.content_id
    return bytes([value.payload]) + (id.bytes if same else bytes(16))


def span_detail(first: bytes, last: bytes) -> bytes:
    """A digest of the first and the last key of a segment."""
    return sha256(first + last).digest()[:DETAIL_BYTES]


def creation_detail(created_micros: int, note: ObjId | None) -> bytes:
    """The time and the tag note in the record of a reference, as a detail."""
    return sha256(b"%d TAG %b" % (created_micros, note or b"")).digest()[:DETAIL_BYTES]


def judged(pointer: Pointer, kind: str | None, detail: bytes) -> Finding | None:
    """The finding about a pointer to an object with this kind and detail, None if it is missing.

    A missing object is named itself. If the object is intact, but not what the pointer states, the
    object with the pointer is named.
    """
    role = pointer.role
    if kind is None and role is Role.CREATION:
        return None  # The commit that has the name points to the record, too.
    if kind is None:
        wanted = " or ".join(kind_name(letter) for letter in role.kinds)
        source = pointer.source.hex()
        return Finding(pointer.target, "the object is missing", wanted, role.words, source)
    if kind == DAMAGED:
        return None
    if kind not in role.kinds:
        found = "an object of an unknown kind" if kind == NOT_UNDERSTOOD else kind_name(kind)
        problem = f"its {role.words} {pointer.target.hex()} is {found}"
    elif not fits(pointer.detail, detail):
        problem = f"its {role.words} {pointer.target.hex()} {_DIFFERENCES[role]}"
    else:
        return None
    return Finding(pointer.source, problem, _SOURCES.get(role, ""), role.words)


def fits(stated: bytes, found: bytes) -> bool:
    return stated[0] in (0, found[0]) and stated[1:] in (bytes(DETAIL_BYTES - 1), found[1:])


_DIFFERENCES: Final = {
    Role.STRIPE: "spans other keys",
    Role.VALUE: "has another type or content id",
    Role.CREATION: "has another time or tag note than the reference",
}
_SOURCES: Final = {
    Role.CREATION: kind_name("r"),
    Role.HEAD: REFERENCE,
    Role.TAG: REFERENCE,
    **dict.fromkeys(
        (Role.PARENT, Role.MERGE_PARENT, Role.REFERENCE_INDEX, Role.VALUE, Role.RECORD),
        kind_name("c"),
    ),
}
"""The kinds of the objects that point. Stripes are in commits and in lists of stripes."""

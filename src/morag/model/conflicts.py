"""Why a change was refused, key by key."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from morag.model.keys import ContentKey


class ConflictType(Enum):
    UNKNOWN = "UNKNOWN"
    UNEXPECTED_HASH = "UNEXPECTED_HASH"
    KEY_EXISTS = "KEY_EXISTS"
    KEY_DOES_NOT_EXIST = "KEY_DOES_NOT_EXIST"
    PAYLOAD_DIFFERS = "PAYLOAD_DIFFERS"
    CONTENT_ID_DIFFERS = "CONTENT_ID_DIFFERS"
    VALUE_DIFFERS = "VALUE_DIFFERS"
    NAMESPACE_ABSENT = "NAMESPACE_ABSENT"
    NOT_A_NAMESPACE = "NOT_A_NAMESPACE"
    NAMESPACE_NOT_EMPTY = "NAMESPACE_NOT_EMPTY"
    KEY_CONFLICT = "KEY_CONFLICT"
    DOCUMENTATION_DIFFERS = "DOCUMENTATION_DIFFERS"


class Conflict(Struct, frozen=True, rename="camel"):
    conflict_type: ConflictType
    key: ContentKey | None
    message: str

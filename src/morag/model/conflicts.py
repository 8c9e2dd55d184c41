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

    @classmethod
    def _missing_(cls, value: object) -> ConflictType:
        """A newer server may know kinds of conflicts that we do not."""
        return cls.UNKNOWN


class Conflict(Struct, frozen=True, rename="camel"):
    """Why a change was refused for one key."""

    # Defaults, because the details of an error may be incomplete.
    conflict_type: ConflictType = ConflictType.UNKNOWN
    key: ContentKey | None = None
    message: str = ""

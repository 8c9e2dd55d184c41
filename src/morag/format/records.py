"""The two records of a store: refs and rows."""

from __future__ import annotations

from typing import NewType

from msgspec import Struct

ObjId = NewType("ObjId", bytes)

UNIQUE_KIND = "u"
"""The one kind of row that must be new when it is inserted through `apply`."""


class PreviousPointer(Struct, frozen=True, gc=False):
    """A commit that a ref pointed to, and the time until which it did."""

    pointer: ObjId
    until_micros: int


class Ref(Struct, frozen=True, gc=False):
    """A named pointer to a commit. Nothing else in a repository ever changes."""

    name: str
    pointer: ObjId
    deleted: bool = False
    created_micros: int = 0
    extended_info: ObjId | None = None
    previous: tuple[PreviousPointer, ...] = ()

    @property
    def identity(self) -> tuple[str, ObjId, bool, int, ObjId | None]:
        """The fields that a conditional swap compares: all but `previous`, which is history."""
        return self.name, self.pointer, self.deleted, self.created_micros, self.extended_info


class Row(Struct, frozen=True, gc=False):
    """A stored object.

    `data` is Nessie's ObjProto without its last field, `referenced`: each engine stores that time
    where Nessie stores it. Two rows with the same id hold the same object, so a row is never
    edited. Only rows of custom kinds have a `version` and may be swapped.
    """

    id: ObjId
    kind: str
    data: bytes
    version: str | None = None
    referenced_micros: int = 0

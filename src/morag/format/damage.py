"""Damage to stored bytes: the errors that mean it, and how it is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import RepositoryCorrupt

if TYPE_CHECKING:
    from morag.format.records import ObjId

UNREADABLE: Final = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError)
"""The errors that a decoder may raise for damaged bytes.

A decoder of stored bytes uses nothing but these bytes, so each of these errors means damage. Where
msgspec decodes, callers catch its `MsgspecError` as well.
"""


def damaged_ref(name: str) -> RepositoryCorrupt:
    which = f"The stored reference '{name}'" if name else "A stored reference"
    return RepositoryCorrupt.found(which, "is damaged")


def damaged_row(id: ObjId) -> RepositoryCorrupt:
    return RepositoryCorrupt.object(id, "is damaged")

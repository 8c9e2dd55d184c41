"""`Finding`: what a check of stored objects reports."""

from __future__ import annotations

from msgspec import Struct

from morag.format.objects import KINDS
from morag.format.records import ObjId

REFERENCE = "REFERENCE"
"""The kind of a finding about a reference; the kinds of objects are those of `kind_name`."""


class Finding(Struct, frozen=True, gc=False):
    """One problem, and the object that has it.

    If the object is missing, `needed_by` is an object or a reference that points to it, and `role`
    what it is for that one. The id of a finding about a reference is that of its record on
    `int/refs`, or of the commit that it points to.
    """

    id: ObjId
    problem: str
    kind: str = ""
    role: str = ""
    needed_by: str = ""


def kind_name(letter: str) -> str:
    """The name of a kind of object, as the table `objects` shows it."""
    kind = KINDS.get(letter)
    return letter if kind is None else kind.__name__.upper()

"""The commits on `int/refs` that add and remove the names of references."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.format.index_entries import payload_of, value_of
from morag.format.objects import RefObj
from morag.index.keys import text_key
from morag.logic.commits import Add, Draft, Remove
from morag.logic.internal_refs import internal_draft
from morag.model.times import instant_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.format.records import Ref


def initial_state(ref: Ref) -> RefObj:
    """The stored record of a reference that has not moved since its creation."""
    return RefObj(ref.name, ref.pointer, ref.created_micros, ref.extended_info)


def name_added(ref: Ref, now_nanos: int) -> Draft:
    """Adds the name of a reference that is at its first commit."""
    message = f"Create reference {ref.name} pointing to {ref.pointer.hex()}"
    add = Add(text_key(ref.name), 0, initial_state(ref).id)
    return _draft("create", ref, message, now_nanos, adds=[add])


def name_removed(ref: Ref, entry: bytes, now_nanos: int) -> Draft:
    """Removes the name of a reference, which has this index entry."""
    message = f"Drop reference {ref.name} pointing to {ref.pointer.hex()}"
    remove = Remove(text_key(ref.name), payload_of(entry), value_of(entry))
    return _draft("delete", ref, message, now_nanos, removes=[remove])


def _draft(
    operation: str,
    ref: Ref,
    message: str,
    now_nanos: int,
    adds: Sequence[Add] = (),
    removes: Sequence[Remove] = (),
) -> Draft:
    headers = {
        "operation": operation,
        "name": ref.name,
        "head": ref.pointer.hex(),
        "timestamp": instant_text(now_nanos),
        "timestamp.millis": str(now_nanos // 1_000_000),
    }
    return internal_draft(message, headers, adds, removes)

"""Index entries in terms of content keys, content ids and conflicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import BadRequest, ReferenceConflict
from morag.format.content_values import LEGACY_PAYLOAD, content_of_value
from morag.format.ids import NO_CONTENT_ID, uuid_text
from morag.format.index_entries import content_id_of, payload_of, value_of
from morag.format.objects import Value
from morag.index.keys import content_key, key_text
from morag.model.conflicts import Conflict, ConflictType
from morag.model.content import PAYLOADS, TYPE_NAMES
from morag.model.results import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from morag.logic.commits import Add, KeyConflict
    from morag.model.keys import ContentKey
    from morag.persist.persist import Persist

_MESSAGES: Final = {
    ConflictType.KEY_EXISTS: "{} already exists",
    ConflictType.KEY_DOES_NOT_EXIST: "{} does not exist",
    ConflictType.PAYLOAD_DIFFERS: ("payload of existing and expected content for {} are different"),
    ConflictType.CONTENT_ID_DIFFERS: (
        "content IDs of existing and expected content for {} are different"
    ),
    ConflictType.VALUE_DIFFERS: "values of existing and expected content for {} are different",
}


def entry_of(persist: Persist, key: ContentKey, op: bytes) -> Entry:
    """A key and its index entry as users see them, without the content."""
    type = TYPE_NAMES.get(payload_of(op)) or TYPE_NAMES[type_payload(persist, op)]
    return Entry(key, type, content_id_text(persist, op))


def content_id_text(persist: Persist, op: bytes) -> str:
    """The content id of an entry. If it is not a UUID, only the value has it."""
    id = content_id_of(op)
    if id == NO_CONTENT_ID:
        return persist.fetch(Value, value_of(op)).content_id
    return uuid_text(id)


def type_payload(persist: Persist, op: bytes) -> int:
    """The payload of an entry's content. For a legacy entry, only the value has it."""
    if is_legacy(op):
        content = content_of_value(persist.fetch(Value, value_of(op)))
        return PAYLOADS[type(content)]
    return payload_of(op)


def is_legacy(op: bytes) -> bool:
    """Whether the entry is from a version of Nessie without payloads.

    It keeps payload 0 when its content changes, and so do its values: Nessie compares payloads.
    """
    return payload_of(op) == LEGACY_PAYLOAD


def check_ids(adds: Iterable[Add]) -> None:
    """Refuse to put one content under two keys. The message has the second as a store key."""
    seen: set[bytes] = set()
    for add in adds:
        id = add.content_id
        if id in seen:
            key = content_key(add.key)
            raise BadRequest(f"Duplicate content ID: {uuid_text(id)} for key: M/{key}/C")
        if id != NO_CONTENT_ID:
            seen.add(id)


def conflict_of(found: KeyConflict) -> Conflict:
    key = content_key(found.key)
    named = f"store-key '{key_text(found.key)}'" if key is None else f"key '{key}'"
    return Conflict(found.type, key, _MESSAGES[found.type].format(named))


def reference_conflict(found: Sequence[KeyConflict]) -> ReferenceConflict:
    return ReferenceConflict.of([conflict_of(conflict) for conflict in found])

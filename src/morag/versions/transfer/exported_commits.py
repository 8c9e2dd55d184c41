"""Stored commits as the messages of an export. Pure functions: jobs on Spark call them, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from morag.errors import BadRequest, RepositoryCorrupt
from morag.format.content_rows import content_of_row
from morag.format.export_messages import MOST_MESSAGE_BYTES, RELATED_OBJ, RelatedObj
from morag.format.export_transcoding import ContentJson, exported_message, own_entries_of
from morag.format.ids import NO_CONTENT_ID
from morag.format.objects import CONTENT_ID_SPACE, Unique
from morag.format.records import UNIQUE_KIND, ObjId
from morag.persist.persist import ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from morag.format.export_transcoding import StoredCommit
    from morag.format.records import Row

_ADD: Final = ord("A")
_json: Final = msgspec.json.Encoder().encode


class Exported(Struct, frozen=True):
    """Commits as encoded messages, in the given order.

    `content_ids` are those of their puts, as 16 bytes. `unproven` are the commits whose ids do not
    follow from their rows; nothing is wrong with most of them (`format/proof.py`).
    """

    messages: list[bytes]
    content_ids: set[bytes]
    unproven: list[ObjId]


def exported(
    commits: Sequence[StoredCommit],
    read_rows: Callable[[Sequence[ObjId]], Mapping[ObjId, Row]],
) -> Exported:
    """The commits with their operations in key order. Their values are read together."""
    found = Exported([], set(), [])
    operations = []
    values: dict[ObjId, None] = {}
    for commit in commits:
        own, is_proven = own_entries_of(commit)
        operations.append(own)
        if not is_proven:
            found.unproven.append(commit.id)
        for _, op in own:
            if op[0] == _ADD:
                values[ObjId(op[3:-16])] = None
                found.content_ids.add(op[-16:])
    found.content_ids.discard(NO_CONTENT_ID)
    rows = read_rows(list(values)) if values else {}
    if len(rows) < len(values):
        raise ObjectMissing([id for id in values if id not in rows])
    contents = {id: content_json(row) for id, row in rows.items()}
    for commit, own in zip(commits, operations, strict=True):
        message = exported_message(commit, own, contents)
        if len(message) > MOST_MESSAGE_BYTES:
            raise BadRequest(
                f"Commit {commit.id.hex()} is too large for export files, with {len(own):,} "
                "operations, or contents that it inherited before its history was cut"
            )
        found.messages.append(message)
    return found


def content_json(row: Row) -> ContentJson:
    """The content in the row of a value, as the JSON of the REST API."""
    content = content_of_row(row)
    if content.id is None:
        raise RepositoryCorrupt.object(row.id, "is a content without an id")
    return ContentJson(content.id.encode(), _json(content))


def exported_content_id(content_id: bytes) -> bytes:
    """The claim on a content id, as an encoded message."""
    claim = Unique(CONTENT_ID_SPACE, content_id)
    message = RelatedObj(id=claim.id, type=UNIQUE_KIND, data=content_id, space=CONTENT_ID_SPACE)
    return RELATED_OBJ.encode(message)

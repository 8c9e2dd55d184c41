"""The current contents of one branch as a short made-up history."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from morag.format.commit_headers import headers_of
from morag.format.content_rows import content_of_row
from morag.format.export_messages import (
    EXPORTED_COMMIT,
    ExportedCommit,
    ExportedOperation,
    OperationKind,
)
from morag.format.ids import NO_ANCESTOR, NO_CONTENT_ID
from morag.format.index_entries import ADD, content_id_of, payload_of, value_of, with_action
from morag.format.key_order import key_to_utf8
from morag.format.proof import id_in_key_order
from morag.format.records import ObjId
from morag.index.layered import index_of
from morag.logic.history import head_commit
from morag.model.meta import CommitMeta
from morag.model.times import instant_text
from morag.persist.persist import ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.index.segment import Entry
    from morag.persist.persist import Persist

_KEYS_PER_COMMIT: Final = 100
_json: Final = msgspec.json.Encoder().encode


class MadeUpCommit(Struct, frozen=True):
    """An encoded commit that puts some of the contents."""

    id: ObjId
    message: bytes
    content_ids: list[bytes]


def made_up_commits(
    persist: Persist, branch: str, head: ObjId, now_nanos: int
) -> Iterator[MadeUpCommit]:
    """Commits that put all contents of `head`, in key order, on top of each other.

    Their ids are computed as for any commit, so they can be verified.
    """
    entries = index_of(persist, head_commit(persist, head)).items()
    parent, seq = NO_ANCESTOR, 0
    while some := list(islice(entries, _KEYS_PER_COMMIT)):
        seq += 1
        text = f"Single branch export from '{branch}', part {seq}"
        now = instant_text(now_nanos)
        meta = CommitMeta(
            message=text, authors=("",), author_time=now, committer="", commit_time=now
        )
        headers = headers_of(meta)
        own = [(key_to_utf8(key), with_action(ADD, op)) for key, op in some]
        commit = ExportedCommit(
            id=id_in_key_order(parent, text, headers, own),
            seq=seq,
            parent=parent,
            operations=tuple(_operations(persist, some)),
            created_micros=now_nanos // 1000,
            message=text,
            headers=headers,
        )
        ids = [id for _, op in some if (id := content_id_of(op)) != NO_CONTENT_ID]
        yield MadeUpCommit(commit.id, EXPORTED_COMMIT.encode(commit), ids)
        parent = commit.id


def _operations(persist: Persist, entries: list[Entry]) -> Iterator[ExportedOperation]:
    rows = persist.find(list({value_of(op) for _, op in entries}))
    for key, op in entries:
        row = rows.get(value_of(op))
        if row is None:
            raise ObjectMissing([value_of(op)])
        content = content_of_row(row)
        key_text = key_to_utf8(key).decode()
        yield ExportedOperation(
            OperationKind.PUT, (key_text,), content.id, payload_of(op), _json(content)
        )

"""Commits of a log, as a server shows them, in the form of export files.

A log does not show everything. `seq` stays 0, and deletes have no content type and no content id:
both are known when the parent is. The time of creation is the commit time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from morag.format.commit_headers import known_headers_of
from morag.format.export_messages import ExportedCommit, ExportedOperation, OperationKind
from morag.index.keys import key_text, store_key
from morag.model.content import PAYLOADS
from morag.model.operations import Put
from morag.model.times import parse_header_time
from morag.versions.resolve import object_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from morag.model.operations import Delete
    from morag.model.results import Entry, LogEntry

_json: Final = msgspec.json.Encoder().encode


def logged_commit(entry: LogEntry, *, is_from_morag: bool) -> ExportedCommit:
    """A commit of a log that was read with operations."""
    meta = entry.meta
    created_nanos = parse_header_time(meta.commit_time or "")
    return ExportedCommit(
        id=object_id(meta.hash or ""),
        seq=0,
        parent=object_id(entry.parent),
        merge_parents=tuple([object_id(parent) for parent in meta.parents[1:]]),
        operations=tuple(map(_operation, entry.operations or ())),
        created_micros=(created_nanos or 0) // 1000,
        message=meta.message,
        headers=known_headers_of(meta, in_stored_order=is_from_morag),
    )


def with_inherited(commit: ExportedCommit, entries: Iterable[Entry]) -> ExportedCommit:
    """The first commit of a history, with all entries that it has, contents included.

    If the history was cut, the commit inherited some: they become operations of its own.
    """
    own = {operation.key for operation in commit.operations}
    puts = (
        _operation(Put(entry.key, entry.content)) for entry in entries if entry.content is not None
    )
    inherited = tuple(put for put in puts if put.key not in own)
    return replace(commit, operations=(*commit.operations, *inherited)) if inherited else commit


def _operation(operation: Put | Delete) -> ExportedOperation:
    key = (key_text(store_key(operation.key)),)
    if not isinstance(operation, Put):
        return ExportedOperation(OperationKind.DELETE, key)
    content = operation.content
    return ExportedOperation(
        OperationKind.PUT, key, content.id, PAYLOADS[type(content)], _json(content)
    )

"""Commits of an export as the objects to store. Jobs on Spark call these functions, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from morag.errors import ArchiveInvalid, BadRequest
from morag.format.commit_headers import headers_of
from morag.format.content_values import LEGACY_PAYLOAD, value_of_content
from morag.format.export_messages import (
    EXPORTED_COMMIT,
    ExportedCommit,
    ExportVersion,
    OperationKind,
    read_message,
)
from morag.format.ids import ID_BYTES, NO_ANCESTOR, NO_CONTENT_ID, uuid_bytes
from morag.format.index_entries import ADD, REMOVE, content_id_of, make_op, payload_of, value_of
from morag.format.key_order import key_from_utf8, key_to_utf8
from morag.format.objects import CONTENT_ID_SPACE, Commit, Obj, Unique, Value
from morag.format.proof import id_in_key_order
from morag.format.records import ObjId
from morag.index.keys import key_text, store_key
from morag.index.layered import index_of
from morag.index.segment import Entry
from morag.logic.completion import CommitFacts, commit_on
from morag.logic.refutation import explains, id_with_readded
from morag.model.content import Content
from morag.model.keys import ContentKey, check_key
from morag.model.times import MAX_NANOS, MIN_NANOS, instant_text
from morag.rest.requests import CommitMetaBody

if TYPE_CHECKING:
    from morag.format.export_messages import ExportedOperation
    from morag.index.layered import CommitIndex
    from morag.persist.persist import Persist

_content: Final = msgspec.json.Decoder(Content).decode
_metadata: Final = msgspec.json.Decoder(CommitMetaBody).decode


class ImportedCommit(Struct, frozen=True):
    """A complete commit, and the other objects that must be stored with it or before it.

    `fits` means that its id was computed from its message, headers, parent and operations, in the
    order that Morag uses or in another one that Nessie may have used.
    """

    commit: Commit
    objects: tuple[Obj, ...]
    """Values, claims on new content ids, and objects of the index; not the commit itself."""
    fits: bool


class Operations(Struct, frozen=True):
    """The operations of a commit as index entries in key order, and the values they put.

    Entries of `removed` keys lack their values, and perhaps their content ids, until
    `completed_removes` takes them from the parent's index.
    """

    entries: list[Entry]
    values: list[Value]
    removed: tuple[bytes, ...] = ()


def read_commit(message: bytes, version: int) -> ExportedCommit:
    """Decode a commit, and check what does not depend on others.

    A commit of version 1 gets the form of the later ones. So does a commit that has only
    `metadata` in a file of a later version, as Nessie writes it for a single branch.
    """
    commit = read_message(EXPORTED_COMMIT, message, "A commit of the export")
    if not commit.parent:
        commit = replace(commit, parent=NO_ANCESTOR)
    for id in (commit.id, commit.parent, *commit.merge_parents):
        if len(id) != ID_BYTES:
            raise ArchiveInvalid(f"'{id.hex()[:100]}' in the export is not the id of a commit")
    if commit.id == NO_ANCESTOR:
        raise _invalid(commit, "has the id that stands for no commit")
    if commit.seq < 1:
        raise _invalid(commit, f"has the number {commit.seq}")
    if commit.metadata is not None and not (commit.message or commit.headers):
        commit = _with_headers(commit, commit.metadata)
    if version == ExportVersion.V1:
        operations = (replace(op, key=_raw_key(commit, op.key)) for op in commit.operations)
        commit = replace(commit, operations=tuple(operations))
    return commit


def imported(persist: Persist, parent: Commit | None, exported: ExportedCommit) -> ImportedCommit:
    """The commit on top of its parent, which is complete.

    The objects of the parent's index are read through `persist`: what is not stored yet must be
    staged or cached. Nothing is stored.
    """
    if parent is not None and exported.seq != parent.seq + 1:
        raise _invalid(exported, f"has the number {exported.seq}, and its parent has {parent.seq}")
    index = index_of(persist, parent)
    operations = completed_removes(operations_of(exported), index)
    built = commit_on(persist, parent, facts_of(exported), operations.entries)
    commit, fits = verified(built.commit, index, operations)
    objects = (*operations.values, *new_content_ids(operations, index), *built.indexes)
    return ImportedCommit(commit, objects, fits)


def verified(commit: Commit, parent: CommitIndex, operations: Operations) -> tuple[Commit, bool]:
    """The commit, sealed if its id follows from it, and whether its id fits.

    `parent` is the index of its parent. An id that does not fit is not wrong: Nessie hashes the
    operations in the order of its client, and other programs may compute ids in other ways. So in
    an imported repository, damage to a commit without a seal could not be told from such an id.
    """
    entries = operations.entries
    hashed = [(key_to_utf8(key), op) for key, op in entries]
    in_key_order = id_in_key_order(commit.parent, commit.message, commit.headers, hashed)
    if commit.id != in_key_order and commit.id != id_with_readded(commit, parent, entries):
        return commit, explains(commit, parent)
    return replace(commit, sealed=True), True


def facts_of(exported: ExportedCommit) -> CommitFacts:
    """The statements of the commit about itself."""
    return CommitFacts(
        id=exported.id,
        created_micros=exported.created_micros,
        seq=exported.seq,
        merge_parents=exported.merge_parents,
        headers=exported.headers,
        message=exported.message,
    )


def operations_of(exported: ExportedCommit) -> Operations:
    """The operations as index entries. Values are encoded anew, as a commit would store them."""
    entries: dict[bytes, bytes] = {}
    values: list[Value] = []
    removed: list[bytes] = []
    for operation in exported.operations:
        key = _store_key(exported, operation)
        if operation.kind == OperationKind.PUT:
            value = _value(exported, operation)
            values.append(value)
            entries[key] = make_op(ADD, value.payload, value.id, uuid_bytes(value.content_id))
        elif operation.kind == OperationKind.DELETE:
            removed.append(key)
            entries[key] = _remove(exported, operation)
        else:
            raise _unknown_kind(exported, operation)
    return Operations(sorted(entries.items()), values, tuple(removed))


def raw_operations(exported: ExportedCommit) -> Operations:
    """Like `operations_of`, for a commit whose values are the ids of stored objects."""
    entries: dict[bytes, bytes] = {}
    removed: list[bytes] = []
    for operation in exported.operations:
        key = _store_key(exported, operation)
        if operation.kind == OperationKind.PUT:
            value = ObjId(operation.value or b"")
            if len(value) != ID_BYTES:
                raise _invalid(exported, f"has a put of '{value.hex()[:100]}', which is no id")
            content_id = uuid_bytes(operation.content_id or "")
            entries[key] = make_op(ADD, _payload(exported, operation), value, content_id)
        elif operation.kind == OperationKind.DELETE:
            removed.append(key)
            entries[key] = _remove(exported, operation)
        else:
            raise _unknown_kind(exported, operation)
    return Operations(sorted(entries.items()), [], tuple(removed))


def completed_removes(operations: Operations, parent: CommitIndex) -> Operations:
    """The operations, with the values and content ids of what they remove."""
    if not operations.removed:
        return operations
    gone = parent.get_all(operations.removed)
    entries = dict(operations.entries)
    for key, old in gone.items():
        op = entries[key]
        if op[:1] != REMOVE:
            continue
        content_id = content_id_of(op)
        if content_id == NO_CONTENT_ID:
            content_id = content_id_of(old)
        payload = payload_of(op) or payload_of(old)
        entries[key] = make_op(REMOVE, payload, value_of(old), content_id)
    return Operations(sorted(entries.items()), operations.values)


def new_content_ids(operations: Operations, parent: CommitIndex) -> list[Unique]:
    """Claims on the content ids that are not those of the same keys in the parent."""
    adds = {key: content_id_of(op) for key, op in operations.entries if op[:1] == ADD}
    if not adds:
        return []
    before = parent.get_all(adds)
    return [
        Unique(CONTENT_ID_SPACE, id)
        for key, id in adds.items()
        if id != NO_CONTENT_ID and (key not in before or content_id_of(before[key]) != id)
    ]


def _with_headers(exported: ExportedCommit, metadata: bytes) -> ExportedCommit:
    """The commit with a message and headers from its metadata, the JSON of the REST API."""
    try:
        meta = _metadata(metadata).meta()
    except (msgspec.MsgspecError, BadRequest) as problem:
        raise _invalid(exported, f"has unreadable metadata ({problem})") from None
    created_nanos = max(MIN_NANOS, min(exported.created_micros * 1000, MAX_NANOS))
    now = meta.commit_time or instant_text(created_nanos)
    committer = meta.committer or ""
    meta = replace(
        meta,
        commit_time=now,
        author_time=meta.author_time or now,
        committer=committer,
        authors=meta.authors or (committer,),
    )
    return replace(exported, metadata=None, message=meta.message, headers=headers_of(meta))


def _raw_key(exported: ExportedCommit, elements: tuple[str, ...]) -> tuple[str]:
    key = ContentKey(elements)
    try:
        check_key(key)
    except BadRequest as problem:
        raise _invalid(exported, f"has a bad key ({problem})") from None
    return (key_text(store_key(key)),)


def _store_key(exported: ExportedCommit, operation: ExportedOperation) -> bytes:
    if len(operation.key) != 1:
        raise _invalid(exported, f"has a key of {len(operation.key)} texts instead of one")
    utf8 = operation.key[0].encode()
    # A key ends with an empty element in the bytes of an index, so it must not have one.
    if not utf8 or b"\0\0" in utf8 or utf8[0] == 0 or utf8[-1] == 0:
        raise _invalid(exported, f"has the bad key {operation.key[0][:200]!r}")
    return key_from_utf8(utf8)


def _remove(exported: ExportedCommit, operation: ExportedOperation) -> bytes:
    content_id = uuid_bytes(operation.content_id or "")
    return make_op(REMOVE, _payload(exported, operation), None, content_id)


def _payload(exported: ExportedCommit, operation: ExportedOperation) -> int:
    payload = operation.payload or 0
    if not 0 <= payload < 128:
        raise _invalid(exported, f"has an operation with payload {payload}")
    return payload


def _value(exported: ExportedCommit, operation: ExportedOperation) -> Value:
    try:
        content = _content(operation.value or b"")
    except (msgspec.MsgspecError, UnicodeError) as problem:
        raise _invalid(exported, f"has a content that is not readable ({problem})") from None
    id = operation.content_id or content.id
    if id is None:
        raise _invalid(exported, "has a content without an id")
    if content.id != id:
        content = replace(content, id=id)
    return value_of_content(content, legacy=operation.payload == LEGACY_PAYLOAD)


def _unknown_kind(exported: ExportedCommit, operation: ExportedOperation) -> ArchiveInvalid:
    return _invalid(exported, f"has an operation of the unknown kind {operation.kind}")


def _invalid(exported: ExportedCommit, problem: str) -> ArchiveInvalid:
    return ArchiveInvalid(f"Commit {exported.id.hex()} of the export {problem}")

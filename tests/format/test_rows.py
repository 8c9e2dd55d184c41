"""Recorded rows decode, encode to the same bytes, and have the ids that Morag computes."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from morag.config import Settings
from morag.format import object_codec as codec
from morag.format.header_order import java_header_order
from morag.format.ids import commit_id, hashed_add, hashed_remove
from morag.format.index_entries import ADD, REMOVE, content_id_of, payload_of, value_of
from morag.format.key_order import key_to_utf8
from morag.format.objects import (
    Commit,
    CommitKind,
    Index,
    IndexSegments,
    RefObj,
    StringObj,
    Unique,
    Value,
)
from morag.format.refs import encode_previous
from morag.format.rows import NEVER_REFERENCED
from morag.index.directory import Directory
from morag.index.keys import store_key
from morag.index.layered import index_of
from morag.model.keys import ContentKey
from tests.format import golden

if TYPE_CHECKING:
    from morag.index.layered import CommitIndex

FIELDS = ("date", "author-date", "committer", "author", "signed-off-by")
INTERNAL_FIELDS = ("repo.id", "operation", "name", "head", "timestamp", "timestamp.millis")


def test_every_row_of_the_recording_is_read() -> None:
    assert len(golden.refs()) == 37
    assert Counter(type(obj) for obj in golden.objects().values()) == {
        Commit: 336,
        Value: 288,
        Unique: 272,
        Index: 72,
        RefObj: 45,
        IndexSegments: 12,
        StringObj: 3,
    }


def test_every_ref_encodes_to_the_same_bytes() -> None:
    for record in golden.records("refs2"):
        assert encode_previous(golden.refs()[record["ref_name"]].previous) == record["prev_ptr"]


def test_every_object_encodes_to_the_same_bytes() -> None:
    for record in golden.records("objs2"):
        row = codec.encode(golden.objects()[record["obj_id"]], record["obj_ref"])
        assert (row.kind, row.version) == (record["obj_type"], record["obj_vers"])
        assert row.data + NEVER_REFERENCED == record["obj_value"]
        assert row in golden.rows()


def test_every_id_is_the_hash_of_its_object() -> None:
    for id, obj in golden.objects().items():
        if not isinstance(obj, Commit | IndexSegments):  # These two are constructed with their id.
            assert obj.id == id


def test_every_stripe_list_has_the_id_and_bytes_of_its_stripes() -> None:
    for id, segments in golden.of_kind(IndexSegments).items():
        rebuilt = Directory(codec.decode_stripes(segments.encoded)).as_object()
        assert (rebuilt.id, rebuilt.encoded) == (id, segments.encoded)


def test_every_commit_id_is_the_hash_of_its_operations() -> None:
    persist = golden.store(Settings())
    in_key_order, readded = 0, 0
    for id, commit in golden.of_kind(Commit).items():
        index = index_of(persist, commit)
        before = index_of(persist, golden.parent_of(commit))
        removed = [key for key, op in index.operations() if op[:1] == REMOVE]
        added = [key for key, op in index.operations() if op[:1] == ADD]
        also_removed = [key for key in added if was_readded(before, index, key)]
        removed = sorted(removed + also_removed)
        if hashed(commit, index, before, removed, added) == id:
            in_key_order += 1
        else:
            request = golden.api().request_order[id.hex()]
            removed.sort(key=partial(position, request, "DELETE"))
            added.sort(key=partial(position, request, "PUT"))
            assert hashed(commit, index, before, removed, added) == id
        readded += bool(also_removed)
    assert (in_key_order, readded) == (332, 1)


def was_readded(before: CommitIndex, index: CommitIndex, key: bytes) -> bool:
    """Whether the commit also removed the key. The id covers the remove, the index only the add."""
    old, new = before.get(key), index.get(key)
    return old is not None and new is not None and content_id_of(old) != content_id_of(new)


def hashed(
    commit: Commit,
    index: CommitIndex,
    before: CommitIndex,
    removed: list[bytes],
    added: list[bytes],
) -> bytes:
    removes, adds = [], []
    for key in removed:
        op = before.get(key)
        assert op is not None, "a missing key cannot be removed"
        removes.append(hashed_remove(key_to_utf8(key), payload_of(op), content_id_of(op)))
    for key in added:
        op = index.get(key)
        assert op is not None
        utf8, value, content_id = key_to_utf8(key), value_of(op), content_id_of(op)
        adds.append(hashed_add(utf8, payload_of(op), value, content_id))
    return commit_id(commit.parent, commit.message, commit.headers, (*removes, *adds))


def position(request: golden.Request, verb: str, key: bytes) -> int:
    keys = [(method, store_key(ContentKey(elements))) for method, elements in request]
    return keys.index((verb, key))


def test_a_remove_entry_holds_the_removed_entry() -> None:
    persist = golden.store(Settings())
    for commit in golden.of_kind(Commit).values():
        before = index_of(persist, golden.parent_of(commit))
        for key, op in index_of(persist, commit).operations():
            if op[:1] == REMOVE:
                old = before.get(key)
                assert old is not None and old[1:] == op[1:]


def test_every_commit_follows_its_parent() -> None:
    for commit in golden.of_kind(Commit).values():
        parent = golden.parent_of(commit)
        assert commit.seq == (parent.seq + 1 if parent else 1)
        assert commit.tail[1:] == (parent.tail[:7] if parent else ())


def test_headers_are_in_the_order_of_nessie() -> None:
    sent = golden.api().request_properties
    for id, commit in golden.of_kind(Commit).items():
        stored = [name for name, _ in commit.headers]
        fields = INTERNAL_FIELDS if commit.kind == CommitKind.INTERNAL else FIELDS
        # If the order of the sent properties was not recorded, there is at most one.
        properties = sent.get(id.hex()) or [name for name in stored if name not in fields]
        added = [*properties, *(name for name in fields if name in stored)]
        assert java_header_order(added) == stored

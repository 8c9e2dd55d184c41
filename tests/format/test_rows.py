"""Rows of Nessie decode, encode to the same bytes, and have the ids that we compute."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from morag.backend.protos import NEVER_REFERENCED, encode_previous
from morag.config import Settings
from morag.index.directory import Directory
from morag.index.keys import store_key
from morag.index.layered import index_of
from morag.index.ops import ADD, REMOVE, content_id_of, payload_of, value_of
from morag.model.keys import ContentKey
from morag.persist import codec
from morag.persist.header_order import java_header_order
from morag.persist.ids import commit_id, hashed_add, hashed_remove
from morag.persist.objects import (
    Commit,
    CommitKind,
    Index,
    IndexSegments,
    RefObj,
    StringObj,
    Unique,
    Value,
)
from morag.persist.order import key_to_utf8
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
        if not isinstance(obj, Commit | IndexSegments):  # These two are made with their id.
            assert obj.id == id


def test_every_stripe_list_has_the_id_and_bytes_of_its_stripes() -> None:
    for id, segments in golden.of_kind(IndexSegments).items():
        made = Directory(codec.decode_stripes(segments.encoded)).as_object()
        assert (made.id, made.encoded) == (id, segments.encoded)


def test_every_commit_id_is_the_hash_of_its_operations() -> None:
    persist = golden.store(Settings())
    in_key_order, readded = 0, 0
    for id, commit in golden.of_kind(Commit).items():
        index = index_of(persist, commit)
        before = index_of(persist, golden.parent_of(commit))
        removed = [key for key, op in index.operations() if op[:1] == REMOVE]
        added = [key for key, op in index.operations() if op[:1] == ADD]
        again = [key for key in added if was_readded(before, index, key)]
        removed = sorted(removed + again)
        if hashed(commit, index, before, removed, added) == id:
            in_key_order += 1
        else:
            request = golden.api().request_order[id.hex()]
            removed.sort(key=partial(position, request, "DELETE"))
            added.sort(key=partial(position, request, "PUT"))
            assert hashed(commit, index, before, removed, added) == id
        readded += bool(again)
    assert (in_key_order, readded) == (332, 1)


def was_readded(before: CommitIndex, index: CommitIndex, key: bytes) -> bool:
    """Whether the commit removed the key as well: only the id knows, the index keeps the add."""
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
        assert op is not None, "what is not there cannot be removed"
        removes.append(hashed_remove(key_to_utf8(key), payload_of(op), content_id_of(op)))
    for key in added:
        op = index.get(key)
        assert op is not None
        utf8, value, content_id = key_to_utf8(key), value_of(op), content_id_of(op)
        adds.append(hashed_add(utf8, payload_of(op), value, content_id))
    return commit_id(commit.parent, commit.message, commit.headers, removes, adds)


def position(request: golden.Request, verb: str, key: bytes) -> int:
    keys = [(said, store_key(ContentKey(elements))) for said, elements in request]
    return keys.index((verb, key))


def test_a_removed_entry_says_what_was_removed() -> None:
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


def test_headers_stand_in_the_order_of_the_original() -> None:
    sent = golden.api().request_properties
    for id, commit in golden.of_kind(Commit).items():
        stored = [name for name, _ in commit.headers]
        fields = INTERNAL_FIELDS if commit.kind == CommitKind.INTERNAL else FIELDS
        # Where it was not recorded how a client sent its properties, there is at most one.
        properties = sent.get(id.hex()) or [name for name in stored if name not in fields]
        added = [*properties, *(name for name in fields if name in stored)]
        assert java_header_order(added) == stored

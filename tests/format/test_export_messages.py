"""Messages of export files have the bytes that google-protobuf writes, and are read from them."""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

import pytest
from google.protobuf import (  # type: ignore[import-untyped]  # It has no types.
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from hypothesis import given
from hypothesis import strategies as st

from morag.errors import ArchiveInvalid
from morag.format import export_messages as messages
from morag.format.export_messages import (
    ExportedCommit,
    ExportedDescription,
    ExportedOperation,
    ExportedRef,
    ExportMeta,
    HeadsAndForks,
    NamedReference,
    RelatedObj,
    sized,
    sized_messages,
)
from morag.format.records import ObjId

# The tables of Nessie's transfer.proto: name, number, type, and `?` for explicit presence, `*` for
# repeated fields.
SCHEMA: Final = {
    "ExportMeta": [
        ("created_millis", 1, "int64", ""),
        ("version", 2, "int32", ""),
        ("reference_count", 3, "int64", ""),
        ("commit_count", 4, "int64", ""),
        ("reference_files", 5, "string", "*"),
        ("commit_files", 6, "string", "*"),
        ("nessie_version", 7, "string", "?"),
        ("generic_count", 8, "int64", "?"),
        ("generic_files", 9, "string", "*"),
    ],
    "HeadsAndForks": [
        ("heads", 1, "bytes", "*"),
        ("forks", 2, "bytes", "*"),
        ("scan_started_micros", 3, "int64", ""),
    ],
    "ExportedRef": [
        ("name", 2, "string", ""),
        ("pointer", 3, "bytes", ""),
        ("extended_info", 4, "bytes", "?"),
        ("created_micros", 5, "int64", "?"),
    ],
    "NamedReference": [
        ("kind", 1, "int32", ""),
        ("name", 2, "string", ""),
        ("pointer", 3, "bytes", ""),
    ],
    "Header": [("name", 1, "string", ""), ("values", 2, "string", "*")],
    "ExportedOperation": [
        ("kind", 1, "int32", ""),
        ("key", 2, "string", "*"),
        ("content_id", 3, "string", "?"),
        ("payload", 4, "int32", "?"),
        ("value", 5, "bytes", "?"),
    ],
    "ExportedCommit": [
        ("id", 1, "bytes", ""),
        ("seq", 2, "int64", ""),
        ("parent", 3, "bytes", ""),
        ("merge_parents", 4, "bytes", "*"),
        ("metadata", 5, "bytes", "?"),
        ("operations", 6, "ExportedOperation", "*"),
        ("created_micros", 7, "int64", ""),
        ("message", 8, "string", ""),
        ("headers", 9, "Header", "*"),
    ],
    "ExportedDescription": [
        ("properties", 1, "ExportedDescription.PropertiesEntry", "*"),
        ("repository_id", 2, "string", "?"),
        ("oldest_commit_millis", 3, "int64", "?"),
        ("created_millis", 4, "int64", "?"),
        ("default_branch", 5, "string", "?"),
    ],
    "RelatedObj": [
        ("id", 1, "bytes", ""),
        ("type", 2, "string", ""),
        ("data", 3, "bytes", ""),
        ("version", 4, "string", "?"),
        ("encoding", 5, "int32", "?"),
        ("compression", 6, "string", "?"),
        ("space", 7, "string", "?"),
    ],
}
TABLES: Final[dict[Any, Any]] = {
    ExportMeta: messages.EXPORT_META,
    HeadsAndForks: messages.HEADS_AND_FORKS,
    ExportedRef: messages.EXPORTED_REF,
    NamedReference: messages.NAMED_REFERENCE,
    ExportedOperation: messages.EXPORTED_OPERATION,
    ExportedCommit: messages.EXPORTED_COMMIT,
    ExportedDescription: messages.EXPORTED_DESCRIPTION,
    RelatedObj: messages.RELATED_OBJ,
}


def google_classes() -> dict[str, Any]:
    proto = descriptor_pb2.FieldDescriptorProto
    types = {
        "int32": proto.TYPE_INT32,
        "int64": proto.TYPE_INT64,
        "string": proto.TYPE_STRING,
        "bytes": proto.TYPE_BYTES,
    }
    file = descriptor_pb2.FileDescriptorProto(name="transfer.proto", syntax="proto3", package="t")
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for field, number, kind, mark in fields:
            added = message.field.add(name=field, number=number)
            added.label = proto.LABEL_REPEATED if mark == "*" else proto.LABEL_OPTIONAL
            if kind in types:
                added.type = types[kind]
            else:
                added.type, added.type_name = proto.TYPE_MESSAGE, f".t.{kind}"
            if mark == "?":
                added.proto3_optional = True
                added.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field}")
    (described,) = (each for each in file.message_type if each.name == "ExportedDescription")
    entry = described.nested_type.add(name="PropertiesEntry")
    entry.options.map_entry = True
    for number, field in enumerate(("key", "value"), 1):
        entry.field.add(
            name=field, number=number, type=proto.TYPE_STRING, label=proto.LABEL_OPTIONAL
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}"))
        for name in SCHEMA
    }


GOOGLE: Final = google_classes()

texts = st.text(max_size=20)
data = st.binary(max_size=40)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
many_texts = st.lists(texts, max_size=3).map(tuple)
many_ids = st.lists(data, max_size=3).map(tuple)
operations = st.builds(
    ExportedOperation,
    kind=st.sampled_from([0, 1]),
    key=many_texts,
    content_id=st.none() | texts,
    payload=st.none() | int32,
    value=st.none() | data,
)
headers = st.lists(st.tuples(st.text(min_size=1, max_size=20), many_texts), max_size=3).map(tuple)
structs = st.one_of(
    st.builds(
        ExportMeta,
        created_millis=int64,
        version=int32,
        reference_count=int64,
        commit_count=int64,
        reference_files=many_texts,
        commit_files=many_texts,
        nessie_version=st.none() | texts,
        generic_count=st.none() | int64,
        generic_files=many_texts,
    ),
    st.builds(HeadsAndForks, many_ids, many_ids, int64),
    st.builds(ExportedRef, texts, data, st.none() | data, st.none() | int64),
    st.builds(NamedReference, int32, texts, data),
    operations,
    st.builds(
        ExportedCommit,
        id=data,
        seq=int64,
        parent=data,
        merge_parents=many_ids,
        metadata=st.none() | data,
        operations=st.lists(operations, max_size=3).map(tuple),
        created_micros=int64,
        message=texts,
        headers=headers,
    ),
    st.builds(
        ExportedDescription,
        properties=st.dictionaries(texts, texts, max_size=3),
        repository_id=st.none() | texts,
        oldest_commit_millis=st.none() | int64,
        created_millis=st.none() | int64,
        default_branch=st.none() | texts,
    ),
    st.builds(
        RelatedObj,
        id=data,
        type=texts,
        data=data,
        version=st.none() | texts,
        encoding=st.none() | int32,
        compression=st.none() | texts,
        space=st.none() | texts,
    ),
)


def as_google(struct: Any) -> Any:
    built = GOOGLE[type(struct).__name__]()
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if name == "operations":
            built.operations.extend(map(as_google, value))
        elif name == "headers":
            built.headers.extend(GOOGLE["Header"](name=n, values=v) for n, v in value)
        elif name == "properties":
            built.properties.update(value)
        elif isinstance(value, tuple):
            getattr(built, name).extend(value)
        elif value is not None:
            setattr(built, name, value)
    return built


@given(structs)
def test_messages_have_the_bytes_of_google_protobuf(struct: Any) -> None:
    encoded = TABLES[type(struct)].encode(struct)
    expected = as_google(struct)
    assert GOOGLE[type(struct).__name__].FromString(encoded) == expected
    if len(getattr(struct, "properties", ())) < 2:  # Google sorts them, Nessie does not.
        assert encoded == expected.SerializeToString(deterministic=True)


@given(structs)
def test_messages_of_google_protobuf_are_read(struct: Any) -> None:
    encoded = as_google(struct).SerializeToString()
    assert TABLES[type(struct)].decode(encoded) == struct


@given(structs)
def test_unknown_fields_are_ignored(struct: Any) -> None:
    unknown = b"\xa2\x06\x03new" + b"\xa8\x06\x01"  # Fields 100 and 101.
    encoded = TABLES[type(struct)].encode(struct)
    assert TABLES[type(struct)].decode(encoded + unknown) == struct


def test_unknown_fields_of_operations_and_headers_are_ignored() -> None:
    commit = ExportedCommit(
        id=ObjId(b"i" * 32),
        seq=1,
        operations=(ExportedOperation(0, ("k",)),),
        headers=(("n", ("v",)),),
    )
    google = as_google(commit)
    google.operations[0].MergeFromString(b"\xa8\x06\x01")
    google.headers[0].MergeFromString(b"\xa8\x06\x01")
    read = messages.EXPORTED_COMMIT.decode(google.SerializeToString())
    assert read == commit


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 50))
def test_streams_give_each_message_with_its_offset(found: list[bytes], chunk: int) -> None:
    stream = b"".join(map(sized, found))
    read = list(sized_messages(Trickle(stream, chunk), "f"))
    assert [message for _, message in read] == found
    for offset, message in read:
        assert next(sized_messages(BytesIO(stream[offset:]), "f")) == (0, message)


@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=5), st.data())
def test_a_stream_that_ends_within_a_message_is_refused(found: list[bytes], draw: Any) -> None:
    framed = list(map(sized, found))
    whole = b"".join(framed)
    cut = draw.draw(st.integers(len(whole) - len(framed[-1]) + 1, len(whole) - 1))
    with pytest.raises(ArchiveInvalid, match="cut short"):
        list(sized_messages(BytesIO(whole[:cut]), "f"))


def test_a_message_that_is_too_large_is_refused_before_it_is_read() -> None:
    with pytest.raises(ArchiveInvalid, match="are the most"):
        list(sized_messages(BytesIO(b"\xff\xff\xff\xff\x7f"), "f"))
    with pytest.raises(ArchiveInvalid, match="longer than ten bytes"):
        list(sized_messages(BytesIO(b"\xff" * 20), "f"))


class Trickle(BytesIO):
    """A file that returns few bytes at a time, as a decompressor may."""

    def __init__(self, content: bytes, most: int) -> None:
        super().__init__(content)
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(self._most, self._most if size is None or size < 0 else size))

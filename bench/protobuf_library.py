"""Times our encoder and decoder of table values beside those of google.protobuf, on equal bytes.

Run it with `python -m bench.protobuf_library`. google.protobuf comes with the extra `bigtable`.
"""

from __future__ import annotations

import timeit
from typing import TYPE_CHECKING, Any

from google.protobuf import (  # type: ignore[import-untyped]
    __version__,
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

from morag.format.content_values import (
    ID,
    TABLE,
    TABLE_STATE,
    content_of_value,
    decode_value,
    value_of_content,
)
from morag.format.messages import INT64, TEXT
from morag.model.content import IcebergTable
from morag.protobuf import bytes_field, text_field

if TYPE_CHECKING:
    from collections.abc import Callable

_CALLS = 200
_TABLE = IcebergTable(
    id="b9e9544c-9286-4222-9f85-09f0477c81f3",
    metadata_location=f"s3://warehouse/db/table/metadata/00001-{'b9e9544c' * 4}.metadata.json",
    snapshot_id=7234872348723487234,
    schema_id=1,
    spec_id=0,
    sort_order_id=0,
)


def main() -> None:
    content_class, value = _content_class(), value_of_content(_TABLE)

    def encode() -> bytes:
        content = content_class(id=_TABLE.id)
        state = content.table
        state.snapshot_id, state.schema_id = _TABLE.snapshot_id, _TABLE.schema_id
        state.spec_id, state.sort_order_id = _TABLE.spec_id, _TABLE.sort_order_id
        state.metadata_location = _TABLE.metadata_location
        return bytes(content.SerializeToString(deterministic=True))

    def decode() -> IcebergTable:
        content = content_class.FromString(value.data)
        state = content.table
        return IcebergTable(
            id=content.id,
            metadata_location=state.metadata_location,
            snapshot_id=state.snapshot_id,
            schema_id=state.schema_id,
            spec_id=state.spec_id,
            sort_order_id=state.sort_order_id,
        )

    def encode_ours() -> bytes:
        state = bytes_field(TABLE_STATE.number, TABLE.encode(_TABLE))
        return state + text_field(ID.number, value.content_id)

    assert encode() == encode_ours() == value.data
    assert decode() == content_of_value(value) == _TABLE
    print(f"google.protobuf {__version__}, nanoseconds per call")
    _time("encode, google.protobuf", encode)
    _time("encode, ours", encode_ours)
    _time("decode, google.protobuf", decode)
    _time("decode, ours", lambda: decode_value(value))


def _time(name: str, call: Callable[[], object]) -> None:
    seconds = min(timeit.repeat(call, number=_CALLS, repeat=_CALLS)) / _CALLS
    print(f"{name:25}{seconds * 1e9:8.0f}")


def _content_class() -> Any:
    """A message class made from our field tables, like one from a .proto file."""
    field = descriptor_pb2.FieldDescriptorProto
    types = {INT64.read: field.TYPE_INT64, TEXT.read: field.TYPE_STRING}
    file = descriptor_pb2.FileDescriptorProto(name="content.proto", syntax="proto3")
    table = file.message_type.add(name="Table")
    for known in TABLE.fields.values():
        type = types.get(known.type.read, field.TYPE_INT32)
        table.field.add(name=known.name, number=known.number, type=type, label=1)
    content = file.message_type.add(name="Content")
    state = {"type": field.TYPE_MESSAGE, "type_name": ".Table", "label": 1}
    content.field.add(name=TABLE_STATE.name, number=TABLE_STATE.number, **state)
    content.field.add(name=ID.name, number=ID.number, type=field.TYPE_STRING, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Content"))


if __name__ == "__main__":
    main()

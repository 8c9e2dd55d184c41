"""The messages of Nessie's export files, and streams of them.

A field that is not in a table is ignored, so that files of later versions of Nessie can be read.
Names of commits, operations and references here are those of export files; the stored objects are
in `objects.py`.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import IO, TYPE_CHECKING, BinaryIO, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from morag.errors import ArchiveInvalid
from morag.format.content_values import PROPERTIES
from morag.format.damage import UNREADABLE
from morag.format.ids import NO_ANCESTOR, Headers
from morag.format.messages import (
    BYTES,
    ID,
    INT32,
    INT64,
    OPTIONAL,
    REPEATED,
    TEXT,
    Field,
    Message,
    nested,
)
from morag.format.object_codec import HEADERS
from morag.format.records import ObjId
from morag.protobuf import HEADS, read_varint, varint

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

MOST_MESSAGE_BYTES: Final = 64 * 1024 * 1024
_READ_BYTES: Final = 256 * 1024
_SMALL_BYTES: Final = 4096
_LONGEST_SIZE: Final = 10  # Bytes of a size before a message, at most.


class ExportVersion(IntEnum):
    """How commits and references are written."""

    V1 = 1
    """Nessie before 0.60: keys by elements, metadata as JSON, `NamedReference`."""
    V2 = 2
    V3 = 3
    """V2 and generic objects."""


class OperationKind(IntEnum):
    PUT = 0
    DELETE = 1


class ReferenceKind(IntEnum):
    """The kind of a `NamedReference`."""

    BRANCH = 0
    TAG = 1


SMILE: Final = 1
"""The encoding of custom objects."""


class ExportMeta(Struct, frozen=True, kw_only=True):
    """Lists the other files. Written last: without it, an export is not complete."""

    created_millis: int = 0
    version: int = 0
    reference_count: int = 0
    commit_count: int = 0
    reference_files: tuple[str, ...] = ()
    commit_files: tuple[str, ...] = ()
    nessie_version: str | None = None
    generic_count: int | None = None
    generic_files: tuple[str, ...] = ()


class HeadsAndForks(Struct, frozen=True):
    """Commits that are the parent of none, and commits that are the first parent of several."""

    heads: tuple[ObjId, ...] = ()
    forks: tuple[ObjId, ...] = ()
    scan_started_micros: int = 0


class ExportedRef(Struct, frozen=True, gc=False):
    """A reference by its full name. `created_micros` is None in old files of version 2."""

    name: str
    pointer: ObjId
    extended_info: ObjId | None = None
    created_micros: int | None = None


class NamedReference(Struct, frozen=True, gc=False):
    """A reference of version 1, by its short name."""

    kind: int
    name: str
    pointer: ObjId


class ExportedOperation(Struct, frozen=True, gc=False):
    """A put or a delete. `value` is the content as JSON of the REST API.

    `key` is one text, the raw store key; in version 1 it is one text per element.
    """

    kind: int
    key: tuple[str, ...]
    content_id: str | None = None
    payload: int | None = None
    value: bytes | None = None


class ExportedCommit(Struct, frozen=True, kw_only=True):
    """A commit with its own operations. Version 1 has `metadata`, later ones message and headers.

    `parent` is `NO_ANCESTOR` for a first commit.
    """

    id: ObjId
    seq: int
    parent: ObjId = NO_ANCESTOR
    merge_parents: tuple[ObjId, ...] = ()
    metadata: bytes | None = None
    operations: tuple[ExportedOperation, ...] = ()
    created_micros: int = 0
    message: str = ""
    headers: Headers = ()


class ExportedDescription(Struct, frozen=True, kw_only=True):
    """The description of the repository."""

    properties: dict[str, str] = {}
    repository_id: str | None = None
    oldest_commit_millis: int | None = None
    created_millis: int | None = None
    default_branch: str | None = None


class RelatedObj(Struct, frozen=True, kw_only=True, gc=False):
    """An object that commits do not carry: a claimed content id (`space`), or a custom object.

    `type` is the kind letter of the row. `data` of a custom object is `encoding`, compressed by
    the algorithm with the letter `compression`.
    """

    id: ObjId
    type: str
    data: bytes = b""
    version: str | None = None
    encoding: int | None = None
    compression: str | None = None
    space: str | None = None


def read_message(table: Message[T], message: bytes, what: str) -> T:
    """Decode a message. Raises `ArchiveInvalid` if it is damaged; `what` names it."""
    try:
        return table.decode(message)
    except UNREADABLE as damage:
        raise ArchiveInvalid(f"{what} is not readable ({damage})") from None


# Streams


def sized(message: bytes) -> bytes:
    """The message as it stands in a data file: after its size."""
    return varint(len(message)) + message


def sized_messages(
    file: BinaryIO, name: str, most_bytes: int = MOST_MESSAGE_BYTES
) -> Iterator[tuple[int, bytes]]:
    """The messages from the current position of `file` to its end, each with its offset.

    Offsets count from that position. At most two buffers and one message are in memory. Raises
    `ArchiveInvalid` for a file that ends within a message, and for a message above `most_bytes`.
    """
    buffer, at, before = b"", 0, 0  # `before` counts the bytes that are no longer in the buffer.
    while True:
        try:
            size, start = read_varint(buffer, at)
            end = start + size
        except IndexError:  # Cut within the size, or at the end of the buffer.
            size, start, end = 0, at, len(buffer) + 1
        except ValueError as damage:
            raise _damaged(name, before + at, str(damage)) from None
        if size > most_bytes:
            raise _damaged(name, before + at, f"it has {size} bytes, and {most_bytes} are the most")
        if end <= len(buffer):
            yield before + at, buffer[start:end]
            at = end
            continue
        rest = buffer[at:]
        more = file.read(max(_READ_BYTES, size + _LONGEST_SIZE - len(rest)))
        if not more:
            if rest:
                raise _damaged(name, before + at, "the file is cut short; export it again")
            return
        before += at
        buffer, at = rest + more, 0


def sized_message_at(file: IO[bytes], offset: int) -> bytes:
    """The message at this offset of a file, which was read before."""
    file.seek(offset)
    start = file.read(_SMALL_BYTES)
    size, at = read_varint(start, 0)
    rest = size - (len(start) - at)
    return start[at : at + size] if rest <= 0 else start[at:] + file.read(rest)


def _damaged(name: str, offset: int, problem: str) -> ArchiveInvalid:
    return ArchiveInvalid(f"Export file '{name}' has a bad message at byte {offset}: {problem}")


# Tables


EXPORT_META: Final = Message(
    ExportMeta,
    Field(1, "created_millis", INT64),
    Field(2, "version", INT32),
    Field(3, "reference_count", INT64),
    Field(4, "commit_count", INT64),
    Field(5, "reference_files", TEXT, REPEATED),
    Field(6, "commit_files", TEXT, REPEATED),
    Field(7, "nessie_version", TEXT, OPTIONAL),
    Field(8, "generic_count", INT64, OPTIONAL),
    Field(9, "generic_files", TEXT, REPEATED),
    ignores_unknown=True,
)
HEADS_AND_FORKS: Final = Message(
    HeadsAndForks,
    Field(1, "heads", ID, REPEATED),
    Field(2, "forks", ID, REPEATED),
    Field(3, "scan_started_micros", INT64),
    ignores_unknown=True,
)
EXPORTED_REF: Final = Message(
    ExportedRef,
    Field(2, "name", TEXT),
    Field(3, "pointer", ID),
    Field(4, "extended_info", ID, OPTIONAL),
    Field(5, "created_micros", INT64, OPTIONAL),
    ignores_unknown=True,
)
NAMED_REFERENCE: Final = Message(
    NamedReference,
    Field(1, "kind", INT32),
    Field(2, "name", TEXT),
    Field(3, "pointer", ID),
    ignores_unknown=True,
)
EXPORTED_OPERATION: Final = Message(
    ExportedOperation,
    Field(1, "kind", INT32),
    Field(2, "key", TEXT, REPEATED),
    Field(3, "content_id", TEXT, OPTIONAL),
    Field(4, "payload", INT32, OPTIONAL),
    Field(5, "value", BYTES, OPTIONAL),
    ignores_unknown=True,
)
_encode_operation: Final = EXPORTED_OPERATION.encode


def _operation_field(number: int, operation: ExportedOperation) -> bytes:
    message = _encode_operation(operation)
    return HEADS[number][len(message)] + message


def _header(name: str, values: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    return name, values


_HEADER: Final = Message(
    _header,
    Field(1, "name", TEXT),
    Field(2, "values", TEXT, REPEATED),
    ignores_unknown=True,
)
_decode_header: Final = lru_cache(maxsize=4096)(_HEADER.decode)  # Most repeat, but for times.
_HEADERS: Final = replace(HEADERS, names=HEADERS.names | {"read_headers": _decode_header})
EXPORTED_COMMIT: Final = Message(
    ExportedCommit,
    Field(1, "id", ID),
    Field(2, "seq", INT64),
    Field(3, "parent", ID),
    Field(4, "merge_parents", ID, REPEATED),
    Field(5, "metadata", BYTES, OPTIONAL),
    Field(
        6,
        "operations",
        nested("operation", _operation_field, EXPORTED_OPERATION.decode),
        REPEATED,
    ),
    Field(7, "created_micros", INT64),
    Field(8, "message", TEXT),
    Field(9, "headers", _HEADERS, REPEATED),
    ignores_unknown=True,
)
EXPORTED_DESCRIPTION: Final = Message(
    ExportedDescription,
    Field(1, "properties", PROPERTIES, REPEATED),
    Field(2, "repository_id", TEXT, OPTIONAL),
    Field(3, "oldest_commit_millis", INT64, OPTIONAL),
    Field(4, "created_millis", INT64, OPTIONAL),
    Field(5, "default_branch", TEXT, OPTIONAL),
    ignores_unknown=True,
)
RELATED_OBJ: Final = Message(
    RelatedObj,
    Field(1, "id", ID),
    Field(2, "type", TEXT),
    Field(3, "data", BYTES),
    Field(4, "version", TEXT, OPTIONAL),
    Field(5, "encoding", INT32, OPTIONAL),
    Field(6, "compression", TEXT, OPTIONAL),
    Field(7, "space", TEXT, OPTIONAL),
    ignores_unknown=True,
)

"""The recipes of object ids, written out by hand: an id must outlive every codec.

All ids are SHA-256 over the object type's name and some of its fields, without separators.
Integers are little endian, and so are the two halves of a UUID, although the index stores the same
UUID big endian.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from morag.format.records import ObjId
from morag.model.names import NO_ANCESTOR_HASH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Headers = tuple[tuple[str, tuple[str, ...]], ...]
"""Names with their values, in the order in which they are stored and hashed."""

ID_BYTES: Final = 32
"""The length of an id. Only ids of custom objects may be shorter or longer."""

NO_ANCESTOR: Final = ObjId(bytes.fromhex(NO_ANCESTOR_HASH))
"""The parent of every first commit. No object with this id is ever stored."""

NO_CONTENT_ID: Final = bytes(16)
"""The content id in an index entry if the content has none, or one that is not a UUID."""

_UUID: Final = re.compile("[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")
_PAYLOADS: Final = tuple(n.to_bytes(4, "little") for n in range(128))


def value_id(content_id: bytes, payload: int, data: bytes) -> ObjId:
    return _hash(b"VALUE", content_id, _PAYLOADS[payload], data)


def ref_id(name: str, initial_pointer: ObjId, created_micros: int) -> ObjId:
    return _hash(b"REF", name.encode(), initial_pointer, _long(created_micros))


def unique_id(space: str, value: bytes) -> ObjId:
    return _hash(b"UNIQUE", space.encode(), value)


def index_id(index: bytes) -> ObjId:
    return _hash(b"INDEX", index)


def segments_id(stripes: Iterable[bytes]) -> ObjId:
    """Each stripe is given as its first key, last key and segment id, joined."""
    return _hash(b"INDEX_SEGMENTS", *stripes)


def string_id(
    content_type: str,
    compression: str,
    filename: str | None,
    predecessors: Sequence[ObjId],
    text: bytes,
) -> ObjId:
    mark = ord(compression).to_bytes(2, "little")
    name = (filename or "").encode()
    return _hash(b"STRING", content_type.encode(), mark, name, *predecessors, text)


def tag_id(message: str | None, headers: Headers | None, signature: bytes | None) -> ObjId:
    return _hash(b"TAG", hashed_texts(message or "", headers or ()), signature or b"")


def commit_id(parent: ObjId, message: str, headers: Headers, operations: Iterable[bytes]) -> ObjId:
    """The id of a commit whose operations come from `hashed_remove`, then from `hashed_add`.

    Merge parents, `seq` and times other than those in the headers are not part of the id.
    """
    return _hash(b"COMMIT", parent, hashed_texts(message, headers), *operations)


def commit_id_of_texts(parent: ObjId, texts: bytes, operations: Iterable[bytes]) -> ObjId:
    """As `commit_id`, from `hashed_texts`."""
    return _hash(b"COMMIT", parent, texts, *operations)


def hashed_remove(key: bytes, payload: int, content_id: bytes) -> bytes:
    return b"\2\0\0\0%b%b%b" % (_PAYLOADS[payload], key, _uuid(content_id))


def hashed_add(key: bytes, payload: int, value: ObjId, content_id: bytes) -> bytes:
    return b"".join((b"\1\0\0\0", key, _PAYLOADS[payload], value, _uuid(content_id)))


def hashed_texts(message: str, headers: Headers) -> bytes:
    """The message, and the names and values of headers, joined."""
    parts = [message]
    for name, values in headers:
        parts += (name, *values)
    return "".join(parts).encode()


def uuid_text(id: bytes) -> str:
    h = id.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def uuid_bytes(id: str) -> bytes:
    """The content id as an index stores it; `NO_CONTENT_ID` if it is not a UUID."""
    if not _UUID.fullmatch(id):
        return NO_CONTENT_ID
    return bytes.fromhex(id.replace("-", ""))


def _hash(*parts: bytes) -> ObjId:
    return ObjId(sha256(b"".join(parts)).digest())


def _long(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def _uuid(content_id: bytes) -> bytes:
    """Empty if there is no content id; otherwise each big-endian half reversed."""
    if content_id == NO_CONTENT_ID:
        return b""
    return content_id[7::-1] + content_id[:7:-1]

"""Refs, rows and log lines as documents. The documents of refs and rows are Nessie's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bson import Int64, MaxKey, MinKey
from pymongo import UpdateOne

from morag.backend.base import ObjId, Ref, Row
from morag.backend.ordered_keys import id_range
from morag.format.damage import damaged_ref
from morag.format.refs import decode_previous, encode_previous
from morag.format.rows import NEVER_REFERENCED, without_referenced

if TYPE_CHECKING:
    from morag.backend.base import Slice
    from morag.backend.mongodb.opening import Document

_ID_BYTES: Final = 32


def ref_id(repo: str, name: str) -> Document:
    # MongoDB compares documents with their fields in order, so this order is part of the format.
    return {"r": repo, "n": name}


def row_id(repo: str, id: ObjId) -> Document:
    return {"r": repo, "i": id}


def log_id(repo: str, key: bytes) -> Document:
    """The key is a text, because MongoDB sorts byte strings by length first."""
    return {"r": repo, "k": key.hex()}


def bounds(part: Slice) -> tuple[object, object]:
    """The bounds of the part. MongoDB sorts ids of other lengths before or after all others."""
    low, high = id_range(part)
    return (
        low.ljust(_ID_BYTES, b"\0") if low else MinKey(),
        MaxKey() if high is None else high.ljust(_ID_BYTES, b"\0"),
    )


def ref_document(repo: str, ref: Ref) -> Document:
    document: Document = {"_id": ref_id(repo, ref.name), "p": ref.pointer, "d": ref.deleted}
    if ref.created_micros:
        document["c"] = Int64(ref.created_micros)  # Nessie does not read a shorter type.
    if ref.extended_info is not None:
        document["e"] = ref.extended_info
    previous = encode_previous(ref.previous)
    if previous is not None:
        document["h"] = previous
    return document


def same_ref(repo: str, ref: Ref) -> Document:
    none = {"$exists": False}
    return {
        "_id": ref_id(repo, ref.name),
        "p": ref.pointer,
        "d": ref.deleted,
        "c": ref.created_micros or none,
        "e": none if ref.extended_info is None else ref.extended_info,
    }


def to_ref(document: Document) -> Ref:
    name, pointer, info = document["_id"]["n"], document.get("p"), document.get("e")
    if not pointer:
        raise damaged_ref(name)
    return Ref(
        name,
        ObjId(pointer),
        bool(document.get("d")),
        int(document.get("c") or 0),
        None if info is None else ObjId(info),
        decode_previous(document.get("h"), name),
    )


def row_document(repo: str, row: Row) -> Document:
    document = {"_id": row_id(repo, row.id), "y": row.kind, "z": Int64(row.referenced_micros)}
    if row.version is not None:
        document["V"] = row.version
    document["v"] = row.data + NEVER_REFERENCED
    return document


def refresh(repo: str, row: Row) -> UpdateOne:
    return UpdateOne({"_id": row_id(repo, row.id)}, {"$set": {"z": Int64(row.referenced_micros)}})


def same_row(repo: str, row: Row) -> Document:
    version = {"$exists": False} if row.version is None else row.version
    return {"_id": row_id(repo, row.id), "y": row.kind, "V": version}


def same_time(row: Row) -> Document:
    """The condition on the time. One that is not known may be missing."""
    return {"z": row.referenced_micros or {"$in": [0, None]}}


def to_row(document: Document) -> Row:
    id = ObjId(document["_id"]["i"])
    data = without_referenced(id, document.get("v") or b"")
    return Row(id, document["y"], data, document.get("V"), int(document.get("z") or 0))

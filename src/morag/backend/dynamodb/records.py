"""Refs, rows and log lines as items. The items of refs and rows are Nessie's."""

from __future__ import annotations

from typing import Any, TypeAlias

from morag.backend.base import LogRow, ObjId, Ref, Row
from morag.errors import RepositoryCorrupt
from morag.format.damage import damaged_ref
from morag.format.refs import decode_previous, encode_previous
from morag.format.rows import NEVER_REFERENCED, without_referenced

Item: TypeAlias = dict[str, Any]
Condition: TypeAlias = tuple[str, Item]
"""An expression, and the values that it names."""


def prefix(repo: str) -> str:
    return f"{repo}:"


def ref_key(repo: str, name: str) -> Item:
    return {"k": {"S": prefix(repo) + name}}


def row_key(repo: str, id: ObjId) -> Item:
    return {"k": {"S": prefix(repo) + id.hex()}}


def log_key(repo: str, key: bytes) -> Item:
    return {"r": {"S": prefix(repo)}, "k": {"B": key}}


def is_of(repo: str, item: Item) -> bool:
    """Whether a ref or row with the prefix of the repository belongs to it.

    The key of `b:x` in repository `a` is that of `x` in `a:b`. So a name with a colon, which Nessie
    does not allow, has an attribute of its own.
    """
    rest = item["k"]["S"].removeprefix(prefix(repo))
    return item.get("n", {"S": rest})["S"] == rest and (":" not in rest or "n" in item)


def of_repo(repo: str, kinds: frozenset[str]) -> Condition:
    """Keys with the prefix, of the kinds if any are given. `is_of` decides about the rest."""
    values: Item = {f":y{at}": {"S": kind} for at, kind in enumerate(sorted(kinds))}
    of_kind = f" AND y IN ({', '.join(values)})" if kinds else ""
    return f"begins_with(k, :k){of_kind}", {":k": {"S": prefix(repo)}, **values}


def ref_item(repo: str, ref: Ref) -> Item:
    item = ref_key(repo, ref.name)
    item["p"], item["d"] = {"B": ref.pointer}, {"BOOL": ref.deleted}
    if ref.created_micros:
        item["c"] = {"S": str(ref.created_micros)}
    if ref.extended_info is not None:
        item["e"] = {"B": ref.extended_info}
    previous = encode_previous(ref.previous)
    if previous is not None:
        item["h"] = {"B": previous}
    if ":" in ref.name:
        item["n"] = {"S": ref.name}
    return item


def same_ref(ref: Ref) -> Condition:
    values: Item = {":p": {"B": ref.pointer}, ":d": {"BOOL": ref.deleted}}
    if ref.created_micros:
        values[":c"] = {"S": str(ref.created_micros)}
    if ref.extended_info is not None:
        values[":e"] = {"B": ref.extended_info}
    if ":" in ref.name:
        values[":n"] = {"S": ref.name}
    return _equal("pdcen", values), values


def to_ref(repo: str, item: Item) -> Ref:
    name = item["k"]["S"].removeprefix(prefix(repo))
    pointer, info, previous = (_bytes(item, field) for field in "peh")
    if not pointer:
        raise damaged_ref(name)
    return Ref(
        name,
        ObjId(pointer),
        item.get("d", {}).get("BOOL", False),
        _micros(item, "c"),
        None if info is None else ObjId(info),
        decode_previous(previous, name),
    )


def row_item(repo: str, row: Row) -> Item:
    item = row_key(repo, row.id)
    item["y"], item["z"] = {"S": row.kind}, {"S": str(row.referenced_micros)}
    if row.version is not None:
        item["V"] = {"S": row.version}
    item["v"] = {"B": row.data + NEVER_REFERENCED}
    return item


def same_row(row: Row) -> Condition:
    values: Item = {":y": {"S": row.kind}}
    if row.version is not None:
        values[":V"] = {"S": row.version}
    return _equal("yV", values), values


def unreferenced_row(row: Row) -> Condition:
    """The row with its time. One that is not known may be missing."""
    condition, values = same_row(row)
    same_time = "z = :z" if row.referenced_micros else "(z = :z OR attribute_not_exists(z))"
    return f"{condition} AND {same_time}", {**values, ":z": {"S": str(row.referenced_micros)}}


def to_row(repo: str, item: Item) -> Row:
    text = item["k"]["S"].removeprefix(prefix(repo))
    try:
        id, kind = ObjId(bytes.fromhex(text)), item["y"]["S"]
    except (ValueError, KeyError) as error:
        raise RepositoryCorrupt.found(f"Object {text}", "is damaged") from error
    data = without_referenced(id, _bytes(item, "v") or b"")
    return Row(id, kind, data, item.get("V", {}).get("S"), _micros(item, "z"))


def log_item(repo: str, row: LogRow) -> Item:
    return {**log_key(repo, row.key), "v": {"B": row.data}}


def to_log_row(item: Item) -> LogRow:
    return LogRow(item["k"]["B"], item["v"]["B"])


def _equal(fields: str, values: Item) -> str:
    """The condition that each field has its value, or is absent if it has none."""
    return " AND ".join(
        f"{field} = :{field}" if f":{field}" in values else f"attribute_not_exists({field})"
        for field in fields
    )


def _bytes(item: Item, field: str) -> bytes | None:
    value: bytes | None = item.get(field, {}).get("B")
    return value


def _micros(item: Item, field: str) -> int:
    """A time. Nessie writes it as text."""
    return int(item.get(field, {}).get("S", 0))

"""The requests of the workloads, as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from morag.load.target import Target

FIRST_SNAPSHOT: Final = 3_000_000_000_000_000_000  # As many digits as real snapshot ids.

_COMMIT: Final = (
    '{"commitMeta":{"hash":null,"committer":null,"authors":["spark"],"allSignedOffBy":[],'
    '"message":"Iceberg commit against %(namespace)s.%(table)s","commitTime":null,'
    '"authorTime":null,"allProperties":{"application-type":["iceberg"],'
    '"app-id":["local-1700000000000"]}},"operations":[{"type":"PUT",'
    '"key":{"elements":["%(namespace)s","%(table)s"]},"content":{"type":"ICEBERG_TABLE",'
    '"id":%(id)s,"metadataLocation":"s3://lake/warehouse/%(namespace)s/%(table)s/metadata/'
    '%(snapshot)d.metadata.json","snapshotId":%(snapshot)d,"schemaId":0,"specId":0,'
    '"sortOrderId":0},"documentation":null}]}'
)
"""The body that the Java client sends for one table, byte for byte, but not compressed."""


class Branch(Struct, frozen=True):
    name: str
    hash: str


def create_branch(target: Target, name: str, hash: str) -> bytes:
    source = json.encode({"type": "DETACHED", "hash": hash})
    return target.post(f"trees?name={name}&type=BRANCH", source)


def delete_branch(target: Target, name: str, hash: str) -> bytes:
    return target.delete(f"trees/{name}%40{hash}")


def get_contents(target: Target, branch: str, keys: Iterable[Sequence[str]]) -> bytes:
    body = json.encode({"requestedKeys": [{"elements": key} for key in keys]})
    return target.post(f"trees/{branch}/contents", body)


def put_table(key: Sequence[str], snapshot: int, id: str | None = None) -> dict[str, Any]:
    """An operation for `commit`."""
    name = "/".join(key)
    content = {
        "type": "ICEBERG_TABLE",
        "id": id,
        "metadataLocation": f"s3://lake/warehouse/{name}/metadata/{snapshot}.metadata.json",
        "snapshotId": snapshot,
        "schemaId": 0,
        "specId": 0,
        "sortOrderId": 0,
    }
    return {"type": "PUT", "key": {"elements": key}, "content": content}


def put_namespace(name: str) -> dict[str, Any]:
    """An operation for `commit`."""
    content = {"type": "NAMESPACE", "elements": [name]}
    return {"type": "PUT", "key": {"elements": [name]}, "content": content}


def commit(target: Target, branch: Branch, message: str, operations: Sequence[object]) -> bytes:
    body = json.encode({"commitMeta": {"message": message}, "operations": operations})
    return target.post(f"trees/{branch.name}%40{branch.hash}/history/commit", body)


def commit_table(
    target: Target, branch: str, head: str, namespace: str, table: str, snapshot: int, id: str
) -> bytes:
    """The commit of Iceberg for one table. `id` is JSON: null for a new table."""
    body = _COMMIT % {"namespace": namespace, "table": table, "id": id, "snapshot": snapshot}
    return target.post(f"trees/{branch}%40{head}/history/commit", body.encode("ascii"))


def merge(target: Target, source: Branch, into: Branch) -> bytes:
    body = json.encode({"fromRefName": source.name, "fromHash": source.hash})
    return target.post(f"trees/{into.name}%40{into.hash}/history/merge", body)


def transplant(target: Target, source: Branch, into: Branch) -> bytes:
    body = json.encode({"fromRefName": source.name, "hashesToTransplant": [source.hash]})
    return target.post(f"trees/{into.name}%40{into.hash}/history/transplant", body)

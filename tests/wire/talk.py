"""A short way to talk JSON with the API in tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from msgspec import Struct

from tests.wire.asking import asking
from tests.wire.transcripts import Asked

if TYPE_CHECKING:
    from morag.versions.repository import Repository

TABLE = {
    "type": "ICEBERG_TABLE",
    "metadataLocation": "s3://lake/1.json",
    "snapshotId": 1,
    "schemaId": 2,
    "specId": 3,
    "sortOrderId": 4,
}
VIEW = {
    "type": "ICEBERG_VIEW",
    "metadataLocation": "s3://lake/v.json",
    "versionId": 1,
    "schemaId": 2,
}


class Told(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    json: Any


class Talk:
    def __init__(self, repository: Repository) -> None:
        self._ask = asking(repository)

    def get(self, path: str, headers: Mapping[str, str] | None = None, **query: object) -> Told:
        return self.send("GET", path, None, headers, **query)

    def post(
        self, path: str, body: Any, headers: Mapping[str, str] | None = None, **query: object
    ) -> Told:
        return self.send("POST", path, body, headers, **query)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        **query: object,
    ) -> Told:
        """A query's underscores are the API's hyphens; bytes are sent as they are."""
        pairs = {name.replace("_", "-"): value for name, value in query.items()}
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        asked = Asked(
            method,
            quote(path, safe="/@%~*.-;="),
            urlencode(pairs),
            [*(headers or {}).items()],
            sent,
        )
        reply = self._ask(asked)
        return Told(reply.status, reply.headers, json.loads(reply.body) if reply.body else None)

    def head(self, name: str) -> str:
        return str(self.get(f"/api/v2/trees/{name}").json["reference"]["hash"])

    def put(self, branch: str, *key: str, content: Mapping[str, object] = TABLE) -> Any:
        """Commit one put at the head; the new content's id, if there is one."""
        told = self.commit(branch, put(*key, content=content))
        assert told.status == 200, told
        added = told.json["addedContents"]
        return added[0]["contentId"] if added else None

    def commit(self, branch: str, *operations: Mapping[str, object]) -> Told:
        body = {"commitMeta": {"message": "m"}, "operations": operations}
        return self.post(f"/api/v2/trees/{branch}@{self.head(branch)}/history/commit", body)


def put(*key: str, content: Mapping[str, object] = TABLE) -> dict[str, object]:
    return {"type": "PUT", "key": {"elements": key}, "content": content}


def delete(*key: str) -> dict[str, object]:
    return {"type": "DELETE", "key": {"elements": key}}

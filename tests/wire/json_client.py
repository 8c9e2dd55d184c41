"""A client that sends JSON to the API in this process and decodes its replies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from msgspec import Struct

from tests.wire.api_calls import api_caller
from tests.wire.transcripts import SentRequest

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


class JsonReply(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    json: Any


class JsonClient:
    def __init__(self, repository: Repository) -> None:
        self._ask = api_caller(repository)

    def get(
        self, path: str, headers: Mapping[str, str] | None = None, **query: object
    ) -> JsonReply:
        return self.send("GET", path, None, headers, **query)

    def post(
        self, path: str, body: Any, headers: Mapping[str, str] | None = None, **query: object
    ) -> JsonReply:
        return self.send("POST", path, body, headers, **query)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        **query: object,
    ) -> JsonReply:
        """Underscores in names of the query become hyphens; a body of bytes is sent unchanged."""
        pairs = {name.replace("_", "-"): value for name, value in query.items()}
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent_request = SentRequest(
            method,
            quote(path, safe="/@%~*.-;="),
            urlencode(pairs),
            [*(headers or {}).items()],
            sent,
        )
        reply = self._ask(sent_request)
        return JsonReply(
            reply.status, reply.headers, json.loads(reply.body) if reply.body else None
        )

    def head(self, name: str) -> str:
        return str(self.get(f"/api/v2/trees/{name}").json["reference"]["hash"])

    def put(self, branch: str, *key: str, content: Mapping[str, object] = TABLE) -> Any:
        """Commit one put on the head; returns the id of new content."""
        reply = self.commit(branch, put(*key, content=content))
        assert reply.status == 200, reply
        added = reply.json["addedContents"]
        return added[0]["contentId"] if added else None

    def commit(self, branch: str, *operations: Mapping[str, object]) -> JsonReply:
        body = {"commitMeta": {"message": "m"}, "operations": operations}
        return self.post(f"/api/v2/trees/{branch}@{self.head(branch)}/history/commit", body)


def put(*key: str, content: Mapping[str, object] = TABLE) -> dict[str, object]:
    return {"type": "PUT", "key": {"elements": key}, "content": content}


def delete(*key: str) -> dict[str, object]:
    return {"type": "DELETE", "key": {"elements": key}}

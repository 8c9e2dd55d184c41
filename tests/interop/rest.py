"""Requests of API v2 without a client, to prepare tests of clients and to check their results."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.error import HTTPError
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Sequence

Json: TypeAlias = Any
NOTHING: Final = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
"""The hash of a branch without commits."""


class Rest:
    def __init__(self, address: str) -> None:
        self.address = address

    def head(self, name: str) -> str:
        return str(self.ask("GET", ["trees", name])["reference"]["hash"])

    def create(self, name: str, at: str = NOTHING) -> str:
        """Create a branch; return its hash."""
        source = {"type": "DETACHED", "hash": at}
        return str(
            self.ask("POST", ["trees"], source, name=name, type="BRANCH")["reference"]["hash"]
        )

    def commit(self, branch: str, message: str, operations: Sequence[Json]) -> str:
        """Commit to the head; return the new head."""
        body = {"commitMeta": {"message": message}, "operations": operations}
        path = ["trees", f"{branch}@{self.head(branch)}", "history", "commit"]
        return str(self.ask("POST", path, body)["targetBranch"]["hash"])

    def merge(self, source: str, into: str) -> Json:
        body = {"fromRefName": source, "fromHash": self.head(source)}
        path = ["trees", f"{into}@{self.head(into)}", "history", "merge"]
        return self.ask("POST", path, body)

    def entries(self, ref: str) -> list[Json]:
        found: list[Json] = self.ask("GET", ["trees", ref, "entries"], content="true")["entries"]
        return found

    def history(self, ref: str) -> list[Json]:
        log: list[Json] = self.ask("GET", ["trees", ref, "history"], fetch="ALL")["logEntries"]
        return log

    def ask(self, method: str, path: Sequence[str], body: Json = None, **query: str) -> Json:
        where = "/".join(quote(part, safe="") for part in path)
        request = urllib.request.Request(
            f"{self.address}/api/v2/{where}?{urlencode(query)}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                error.add_note(f"{method} {where}: {error.read().decode()}")
            raise


def put(*key: str, content: Json) -> Json:
    return {"type": "PUT", "key": {"elements": key}, "content": content}


def namespace(*elements: str) -> Json:
    return {"type": "NAMESPACE", "elements": elements}


def table(n: int) -> Json:
    return {
        "type": "ICEBERG_TABLE",
        "metadataLocation": f"file:/table/{n}.json",
        "snapshotId": n,
        "schemaId": 0,
        "specId": 0,
        "sortOrderId": 0,
    }


def view(n: int) -> Json:
    return {
        "type": "ICEBERG_VIEW",
        "metadataLocation": f"file:/view/{n}.json",
        "versionId": n,
        "schemaId": 0,
        "sqlText": "select 1",
        "dialect": "spark",
    }


def delta(n: int) -> Json:
    return {
        "type": "DELTA_LAKE_TABLE",
        "lastCheckpoint": f"checkpoint {n}",
        "checkpointLocationHistory": ["c1"],
        "metadataLocationHistory": ["m1", "m2"],
    }

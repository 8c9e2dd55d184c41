"""A small repository with every kind of stored object, and API requests that read all of it.

The requests go through the HTTP API, so tests compare what a client would receive.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from msgspec import Struct

from morag import (
    UDF,
    CommitMeta,
    ContentKey,
    DeltaLakeTable,
    IcebergTable,
    IcebergView,
    Namespace,
    Put,
    Settings,
)
from morag.api.app import Api
from morag.api.http import Request
from morag.model.configs import GarbageCollectorConfig
from tests.rules.operations import delete, move, put, update
from tests.wire.api_calls import answered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag import Repository
    from morag.model.content import Content

SMALL: Final = Settings(
    max_incremental_index_bytes=600,
    min_index_segment_bytes=150,
    max_index_segment_bytes=500,
    max_inlined_stripes=2,
    parents_per_commit=4,
)
"""Small enough that a few dozen keys need stripes, stripe lists and several tails."""


def fill(repo: Repository) -> None:
    """Branches, tags, namespaces, all content types, merges, renames, re-adds, large commits."""
    space = Namespace(elements=("sales",), properties={"owner": "ann", "ü": "😀"})
    meta = CommitMeta(message="start", properties={"k": ("v", "w")}, signed_off_by=("eve",))
    repo.commit("main", [Put(ContentKey.of("sales"), space)], meta)
    contents: dict[str, Content] = {
        "table": IcebergTable(
            metadata_location="s3://lake/t", snapshot_id=1 << 40, schema_id=2, spec_id=3,
            sort_order_id=-1,
        ),
        "view": IcebergView(
            metadata_location="s3://lake/v", version_id=1, schema_id=2, sql_text="SELECT 1",
            dialect="spark",
        ),
        "delta": DeltaLakeTable(
            metadata_location_history=("a", "b"), checkpoint_location_history=("c",),
            last_checkpoint="c",
        ),
        "udf": UDF(sql_text="1", dialect="spark", version_id="1", signature_id="2"),
    }  # fmt: skip
    for name, content in contents.items():
        repo.commit("main", [Put(ContentKey.of("sales", name), content)], f"add {name}")
    repo.commit("main", [put(f"sales.many-{n}", f"s3://lake/{n}") for n in range(8)], "eight")
    repo.references.create_tag("v1", "main")
    repo.references.create_branch("dev", "main")
    for number in range(12):
        repo.commit("main", [put(f"t{number:02}", f"location {number}")], f"t{number}")
    update(repo, "main", "t03", "another location")
    repo.commit("dev", [put("dev-only", "dev")], "on dev")
    repo.commit("dev", [delete("sales.many-3"), put("dev-too", "dev")], "more on dev")
    repo.merge("dev", "main")
    repo.commit("main", [delete("t05"), put("t05", "anew")], "added again")
    move(repo, "main", "t06", "moved")
    repo.commit("main", [delete("t07")], "gone")
    repo.references.create_branch("side", "v1")
    picked = repo.commit("dev", [put("picked", "dev")], "to be picked").hash
    repo.transplant([picked], "side")
    repo.references.create_tag("v2", "side")
    repo.configs.update(GarbageCollectorConfig(default_cutoff_policy="P30D"))


class Query(Struct, frozen=True):
    method: str
    path: str
    query: str = ""
    body: bytes = b""


class Answer(Struct, frozen=True):
    """A response with its body decoded from JSON."""

    status: int
    json: object

    @property
    def code(self) -> str:
        return str(self.json.get("errorCode", "")) if isinstance(self.json, dict) else ""

    @property
    def message(self) -> str:
        return str(self.json.get("message", "")) if isinstance(self.json, dict) else ""


def queries(repo: Repository) -> list[Query]:
    """Requests for everything that the repository holds."""
    names = [ref.name or "" for ref in repo.references.list()]
    queries = [
        Query("GET", "/api/v2/config"),
        Query("GET", "/api/v2/config/repository", "type=GARBAGE_COLLECTOR"),
        Query("GET", "/api/v2/trees", "fetch=ALL"),
        Query("GET", "/api/v1/trees"),
        Query("GET", "/morag/v1/reflog"),
        Query("GET", "/morag/v1/reflog", "max-records=3"),
    ]
    for name in names:
        keys = [entry.key for entry in repo.contents.entries(name)]
        ref = f"/api/v2/trees/{quote(name)}"
        queries += [
            Query("GET", ref),
            Query("GET", f"{ref}/history", "fetch=ALL"),
            Query("GET", f"{ref}/history"),
            Query("GET", f"{ref}/entries", "content=true"),
            Query("GET", f"{ref}/entries"),
            Query("GET", f"/api/v1/trees/tree/{quote(name)}/log"),
            Query("GET", f"{ref}/recent-changes"),
            Query("POST", f"{ref}/contents", "", _keys(keys)),
        ]
        if name == "main":
            queries += [Query("GET", f"{ref}/contents/{_path(key)}") for key in keys[::4]]
            queries += [
                Query("GET", f"/api/v2/trees/@{entry.meta.hash}/entries")
                for entry in list(repo.history.log(name))[::4]
            ]
            queries.append(Query("GET", f"/api/v2/trees/{name}~7/entries"))
            queries += [Query("GET", f"{ref}/diff/{quote(other)}") for other in names]
    return queries


def answers(repo: Repository, queries: Sequence[Query]) -> list[Answer]:
    api = Api(repo)
    return [_answer(api, query) for query in queries]


def _answer(api: Api, query: Query) -> Answer:
    headers = [(b"content-type", b"application/json")] if query.body else []
    request = Request(query.method, query.path, query.query, headers, query.body)
    response = answered(api, request)
    return Answer(response.status, json.loads(response.body) if response.body else None)


def _keys(keys: Sequence[ContentKey]) -> bytes:
    return json.dumps({"requestedKeys": [{"elements": key.elements} for key in keys]}).encode()


def _path(key: ContentKey) -> str:
    return quote(".".join(key.elements))

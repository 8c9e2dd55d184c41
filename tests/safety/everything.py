"""A small repository that has every kind of stored thing, and every question about it.

What is asked goes through the API, so that it is the answers on the wire that are judged.
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
from tests.rules.scenes import delete, move, put, update
from tests.wire.asking import answered

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
"""So that a few dozen keys need stripes, stripe lists, and several tails."""


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


class Question(Struct, frozen=True):
    method: str
    path: str
    query: str = ""
    body: bytes = b""


class Told(Struct, frozen=True):
    """An answer: its body as JSON."""

    status: int
    json: object

    @property
    def code(self) -> str:
        return str(self.json.get("errorCode", "")) if isinstance(self.json, dict) else ""

    @property
    def message(self) -> str:
        return str(self.json.get("message", "")) if isinstance(self.json, dict) else ""


def questions(repo: Repository) -> list[Question]:
    """All that can be asked of the repository as it is now."""
    names = [ref.name or "" for ref in repo.references.list()]
    asked = [
        Question("GET", "/api/v2/config"),
        Question("GET", "/api/v2/config/repository", "type=GARBAGE_COLLECTOR"),
        Question("GET", "/api/v2/trees", "fetch=ALL"),
        Question("GET", "/api/v1/trees"),
        Question("GET", "/morag/v1/reflog"),
        Question("GET", "/morag/v1/reflog", "max-records=3"),
    ]
    for name in names:
        keys = [entry.key for entry in repo.contents.entries(name)]
        ref = f"/api/v2/trees/{quote(name)}"
        asked += [
            Question("GET", ref),
            Question("GET", f"{ref}/history", "fetch=ALL"),
            Question("GET", f"{ref}/history"),
            Question("GET", f"{ref}/entries", "content=true"),
            Question("GET", f"{ref}/entries"),
            Question("GET", f"/api/v1/trees/tree/{quote(name)}/log"),
            Question("GET", f"{ref}/recent-changes"),
            Question("POST", f"{ref}/contents", "", _keys(keys)),
        ]
        if name == "main":
            asked += [Question("GET", f"{ref}/contents/{_path(key)}") for key in keys[::4]]
            asked += [
                Question("GET", f"/api/v2/trees/@{entry.meta.hash}/entries")
                for entry in list(repo.history.log(name))[::4]
            ]
            asked.append(Question("GET", f"/api/v2/trees/{name}~7/entries"))
            asked += [Question("GET", f"{ref}/diff/{quote(other)}") for other in names]
    return asked


def answers(repo: Repository, asked: Sequence[Question]) -> list[Told]:
    api = Api(repo)
    return [_answer(api, question) for question in asked]


def _answer(api: Api, asked: Question) -> Told:
    headers = [(b"content-type", b"application/json")] if asked.body else []
    request = Request(asked.method, asked.path, asked.query, headers, asked.body)
    response = answered(api, request)
    return Told(response.status, json.loads(response.body) if response.body else None)


def _keys(keys: Sequence[ContentKey]) -> bytes:
    return json.dumps({"requestedKeys": [{"elements": key.elements} for key in keys]}).encode()


def _path(key: ContentKey) -> str:
    return quote(".".join(key.elements))

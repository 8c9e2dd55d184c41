"""Nessie and Morag read and replace the configs of each other in one directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

import morag
from morag.model.configs import GarbageCollectorConfig
from morag.versions.configs import CONFIGS
from tests.nessie.server import Server, rocksdb

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nessie

KIND: Final = "GARBAGE_COLLECTOR"
THEIRS: Final[list[dict[str, Any]]] = [
    {},
    {"defaultCutoffPolicy": "2020-01-01T00:00:00Z", "perRefCutoffPolicies": []},
    {"newFilesGracePeriod": "-P1DT1H0.25S", "expectedFileCountPerContent": -1},
    {
        "expectedFileCountPerContent": 5,
        "newFilesGracePeriod": "P2D",
        "perRefCutoffPolicies": [
            {"policy": "garbage", "referenceNamePattern": 'ü/😀<&>"\\u00ff\u2028'},
            {"policy": "".join(map(chr, range(128))), "referenceNamePattern": "\ue000\U0010ffff"},
            {"policy": "", "referenceNamePattern": ""},
        ],
        "defaultCutoffPolicy": "none",
    },
]
OURS: Final = GarbageCollectorConfig(default_cutoff_policy="P7D", new_files_grace_period="P1D")
AGAIN: Final = {"type": KIND, "defaultCutoffPolicy": "10"}


def post(server: Server, config: dict[str, Any]) -> Any:
    return server.post("config", "repository", body={"config": config})["previous"]


def plain(config: GarbageCollectorConfig | None) -> Any:
    return json.loads(msgspec.json.encode(config))


@pytest.mark.parametrize("sent", THEIRS, ids=["empty", "time", "negative", "full"])
def test_both_servers_read_configs_of_each_other(tmp_path: Path, sent: dict[str, Any]) -> None:
    data = tmp_path / "data"
    with Server(rocksdb(data), tmp_path / "first.log", {}) as nessie:
        assert post(nessie, {"type": KIND, **sent}) is None
        (shown,) = nessie.get("config", "repository", type=KIND)["configs"]
    with morag.open(f"rocksdb:{data}") as repo:
        (found,) = repo.configs.get([GarbageCollectorConfig])
        assert plain(found) == shown
        # Other bytes would be another value, and hence a new commit.
        before = repo._persist.ref(CONFIGS)
        again = msgspec.convert({"type": KIND, **sent}, GarbageCollectorConfig)
        assert repo.configs.update(again) == found
        assert repo._persist.ref(CONFIGS) == before
        assert repo.configs.update(OURS) == found
        (ours,) = repo.configs.get([GarbageCollectorConfig])
    with Server(rocksdb(data), tmp_path / "second.log", {}) as nessie:
        assert nessie.get("config", "repository", type=KIND)["configs"] == [plain(ours)]
        assert post(nessie, AGAIN) == plain(ours)
    with morag.open(f"rocksdb:{data}") as repo:
        assert [plain(c) for c in repo.configs.get([GarbageCollectorConfig])] == [AGAIN]


def test_nessie_continues_from_a_config_that_we_stored_first(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with morag.open(f"rocksdb:{data}") as repo:
        assert repo.configs.update(OURS) is None
        (ours,) = repo.configs.get([GarbageCollectorConfig])
    with Server(rocksdb(data), tmp_path / "nessie.log", {}) as nessie:
        assert nessie.get("config", "repository", type=KIND)["configs"] == [plain(ours)]
        assert [r["name"] for r in nessie.get("trees")["references"]] == ["main"]
        assert post(nessie, AGAIN) == plain(ours)

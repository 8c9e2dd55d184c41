"""A damaged object: requests that need it fail with its id, all others are served."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

import pytest

import morag
from morag.client import Client
from morag.errors import RepositoryCorrupt
from tests.rules.operations import key, put
from tests.server_process import Served

if TYPE_CHECKING:
    from pathlib import Path


def damaged(directory: Path, text: bytes) -> tuple[str, str]:
    """The URL of a store in which an object with this text is damaged, and the id of the object."""
    url = f"sqlite:{directory}/morag.db?sync=off"
    with morag.open(url) as repo:
        repo.commit("main", [put("a", "s3://lake/a"), put("b", "s3://lake/b")], "two")
    with sqlite3.connect(directory / "morag.db") as database:
        ((id, value),) = database.execute(
            "SELECT obj_id, obj_value FROM objs2 WHERE instr(obj_value, ?)", (text,)
        )
        wrong = value.replace(text, text[:-1] + b"q")
        database.execute("UPDATE objs2 SET obj_value = ? WHERE obj_id = ?", (wrong, id))
    database.close()
    return url, id.hex()


def test_a_server_whose_default_branch_cannot_be_read_is_not_ready(tmp_path: Path) -> None:
    url, id = damaged(tmp_path, b"two")
    with Served(tmp_path, store=url) as server:
        ready = server.ask("GET", "/health/ready")
        assert ready.status == 503
        assert id in json.loads(ready.body)["reason"]


def test_damage_is_reported_by_requests_by_readiness_and_once_in_the_log(tmp_path: Path) -> None:
    url, id = damaged(tmp_path, b"lake/a")
    with Served(tmp_path, store=url) as server, Client(server.url) as client:
        assert json.loads(server.ask("GET", "/health/ready").body) == {"status": "UP"}
        error: dict[str, str] = {}
        for _ in range(3):
            answer = server.ask("GET", "/api/v2/trees/main/contents/a")
            error = json.loads(answer.body)
            assert (answer.status, error["errorCode"]) == (500, "REPOSITORY_CORRUPT")
            assert id in error["message"]
            assert "backup" in error["message"]
            with pytest.raises(RepositoryCorrupt, match=id):
                client.contents.get("main", key("a"))
        assert server.ask("GET", "/api/v2/trees/main/contents/b").status == 200
        ready = server.ask("GET", "/health/ready")
        assert ready.status == 200, "all other requests are served"
        assert json.loads(ready.body)["damage"] == {"found": 1, "first": error["message"]}
        assert server.errors().count(id) == 1

"""Requests to a catalog through nginx, and the server that handled them."""

from __future__ import annotations

import json
from itertools import count
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tests.server_process import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.deploy.nginx_process import Nginx
    from tests.server_process import Served

PROBE: Final = "a table"
"""The message of commits that only show which server handles a branch."""

_NUMBERS: Final = count()


def create(nginx: Nginx, name: str) -> None:
    source = {"type": "BRANCH", "name": "main", "hash": head(nginx, "main")}
    nginx.request_json("POST", f"/api/v2/trees?name={quote(name, safe='')}&type=BRANCH", source)


def commit(nginx: Nginx, branch: str) -> str:
    """Commit to a branch; return the path of the request."""
    path = f"/api/v2/trees/{quote(branch, safe='')}@{head(nginx, branch)}/history/commit"
    nginx.request_json("POST", path, operations())
    return path


def head(nginx: Nginx, branch: str) -> str:
    found = nginx.request_json("GET", f"/api/v2/trees/{quote(branch, safe='')}")
    hash: str = found["reference"]["hash"]
    return hash


def home_of(nginx: Nginx, servers: Sequence[Served], branch: str) -> Served:
    """The server that handles commits to this branch."""
    path = commit(nginx, branch)

    def handlers() -> list[Served]:
        return [each for each in servers if any(line["path"] == path for line in logged(each))]

    until(lambda: bool(handlers()))
    [home] = handlers()
    return home


def operations(message: str = PROBE) -> object:
    """The body of a commit that adds a table with a new name."""
    name = f"table-{next(_NUMBERS)}"
    content = {
        "type": "ICEBERG_TABLE",
        "metadataLocation": f"s3://lake/{name}.json",
        "snapshotId": 1,
        "schemaId": 0,
        "specId": 0,
        "sortOrderId": 0,
    }
    put = {"type": "PUT", "key": {"elements": [name]}, "content": content}
    return {"commitMeta": {"message": message}, "operations": [put]}


def logged(server: Served) -> list[dict[str, Any]]:
    """The complete lines of a server's access log."""
    lines = server.errors().split("\n")[:-1]
    return [json.loads(line) for line in lines if line.startswith("{")]


def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds: a server writes its log after it has sent the response."""
    end = monotonic() + PATIENCE_SECONDS
    while not holds():
        assert monotonic() < end, "the condition does not hold in time"
        sleep(0.01)

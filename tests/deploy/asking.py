"""What the tests ask a catalog for through nginx, and the look at who was asked."""

from __future__ import annotations

import json
from itertools import count
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tests.serving import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.deploy.proxied import Nginx
    from tests.serving import Served

PROBE: Final = "a table"
"""The message of commits that are made to see where they go."""

_NUMBERS: Final = count()


def create(nginx: Nginx, name: str) -> None:
    source = {"type": "BRANCH", "name": "main", "hash": head(nginx, "main")}
    nginx.told("POST", f"/api/v2/trees?name={quote(name, safe='')}&type=BRANCH", source)


def commit(nginx: Nginx, branch: str) -> str:
    """The path that was asked for."""
    path = f"/api/v2/trees/{quote(branch, safe='')}@{head(nginx, branch)}/history/commit"
    nginx.told("POST", path, operations())
    return path


def head(nginx: Nginx, branch: str) -> str:
    found = nginx.told("GET", f"/api/v2/trees/{quote(branch, safe='')}")
    hash: str = found["reference"]["hash"]
    return hash


def home_of(nginx: Nginx, servers: Sequence[Served], branch: str) -> Served:
    """The server that a commit to this branch comes to."""
    path = commit(nginx, branch)

    def asked() -> list[Served]:
        return [each for each in servers if any(line["path"] == path for line in logged(each))]

    until(lambda: bool(asked()))
    [home] = asked()
    return home


def operations(message: str = PROBE) -> object:
    """A commit of a new table; each has a name of its own."""
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
    """The lines of its access log that are complete."""
    lines = server.errors().split("\n")[:-1]
    return [json.loads(line) for line in lines if line.startswith("{")]


def until(holds: Callable[[], bool]) -> None:
    """A server writes its log after it has sent the answer, so one has to wait for a line."""
    end = monotonic() + PATIENCE_SECONDS
    while not holds():
        assert monotonic() < end, "it does not come true"
        sleep(0.01)

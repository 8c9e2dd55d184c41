"""nginx in front of two servers on one store sends all writes to a branch to the same server."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import pytest

from tests.deploy.catalog_requests import commit, create, head, home_of, logged, operations, until
from tests.deploy.nginx_process import Nginx
from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.deploy


class Pair(NamedTuple):
    nginx: Nginx
    servers: tuple[Served, Served]

    def writes(self) -> list[int]:
        """The number of requests of each server that were no reads."""
        return [sum(line["method"] != "GET" for line in logged(each)) for each in self.servers]

    def writers(self, send: Callable[[], object], requests: int) -> list[int]:
        """The number of requests that each server gets when `send` sends `requests` writes."""
        before = self.writes()
        send()
        until(lambda: sum(self.writes()) >= sum(before) + requests)
        received = [new - old for new, old in zip(self.writes(), before, strict=True)]
        assert sum(received) == requests
        return received


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("pair")
    store = f"sqlite:{directory / 'morag.db'}"
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(Served(directory, "--access-log", "json", store=store))
            for _ in range(2)
        )
        nginx = stack.enter_context(Nginx(directory, [first.address, second.address]))
        yield Pair(nginx, (first, second))


@pytest.mark.parametrize(
    ("branch", "spellings"),
    [
        ("main", ("main@{}", "main%40{}", "-@{}")),
        ("feature/x", ("feature%2Fx@{}", "feature%2fx%40{}", "feature/x@{}")),
    ],
)
def test_every_spelling_of_a_branch_leads_to_one_server(
    pair: Pair, branch: str, spellings: tuple[str, ...]
) -> None:
    if branch != "main":
        create(pair.nginx, branch)
    hash, escaped = head(pair.nginx, branch), quote(branch, safe="")
    paths = [f"/api/v2/trees/{each.format(hash)}/history/commit" for each in spellings]
    paths.append(f"/api/v1/trees/branch/{escaped}/commit?expectedHash={hash}")
    matched = f"/api/v2/trees/{escaped}/history/commit"

    def commit_all() -> None:
        for path in paths:
            pair.nginx.request_json("POST", path, operations())
        tag = {"If-Match": f'"{hash}"'}
        assert pair.nginx.request("POST", matched, operations(), tag).status == 200

    seen, requests = pair.nginx.branches().count(branch), len(paths) + 1
    assert sorted(pair.writers(commit_all, requests)) == [0, requests]
    until(lambda: pair.nginx.branches().count(branch) == seen + requests)


def test_branches_are_spread_and_keep_their_server(pair: Pair) -> None:
    names = [f"spread-{number}" for number in range(32)]
    for name in names:
        create(pair.nginx, name)
    first = [home_of(pair.nginx, pair.servers, name) for name in names]
    assert set(first) == set(pair.servers)
    assert [home_of(pair.nginx, pair.servers, name) for name in names] == first


def test_references_are_created_and_deleted_by_one_server(pair: Pair) -> None:
    def create_and_delete() -> None:
        for number in range(8):
            name = f"brief-{number}"
            if number % 2:
                create(pair.nginx, name)
                hash = head(pair.nginx, name)
                pair.nginx.request_json("DELETE", f"/api/v2/trees/{name}@{hash}")
            else:
                body = {"type": "BRANCH", "name": name, "hash": head(pair.nginx, "main")}
                pair.nginx.request_json("POST", "/api/v1/trees/tree?sourceRefName=main", body)
                path = f"/api/v1/trees/branch/{name}?expectedHash={head(pair.nginx, name)}"
                assert pair.nginx.request("DELETE", path).status == 204

    assert sorted(pair.writers(create_and_delete, 16)) == [0, 16]


def test_put_requests_arrive_with_their_body(pair: Pair) -> None:
    create(pair.nginx, "assigned")
    commit(pair.nginx, "main")
    wanted = head(pair.nginx, "main")
    at = f"assigned@{head(pair.nginx, 'assigned')}"
    body = {"type": "BRANCH", "name": "main", "hash": wanted}
    pair.nginx.request_json("PUT", f"/api/v2/trees/{at}", body)
    assert head(pair.nginx, "assigned") == wanted
    properties = {"type": "NAMESPACE", "elements": ["sales"], "properties": {"owner": "me"}}
    pair.nginx.request_json("PUT", "/api/v1/namespaces/namespace/assigned/sales", properties)
    found = pair.nginx.request_json("GET", "/api/v1/namespaces/namespace/assigned/sales")
    assert found["properties"] == {"owner": "me"}


def test_reads_are_spread(pair: Pair) -> None:
    def reads() -> list[int]:
        return [
            sum(line["path"] == "/api/v2/trees/main/entries" for line in logged(server))
            for server in pair.servers
        ]

    before = reads()
    for _ in range(10):
        pair.nginx.request_json("GET", "/api/v2/trees/main/entries")
    until(lambda: sum(reads()) == sum(before) + 10)
    assert all(new > old for new, old in zip(reads(), before, strict=True))


def test_the_server_gets_the_path_as_the_client_sent_it(pair: Pair) -> None:
    commit(pair.nginx, "main")
    path = "/api/v2/trees/main/contents/a%2Fb.%C3%A9%1Dc"
    answer = pair.nginx.request("GET", path)
    assert json.loads(answer.body)["errorCode"] == "CONTENT_NOT_FOUND"
    until(lambda: any(line["path"] == path for each in pair.servers for line in logged(each)))


def test_nginx_accepts_requests_as_large_as_morag_does(pair: Pair) -> None:
    keys = [{"elements": ["a" * 400, str(number)]} for number in range(5000)]
    large = pair.nginx.request_json("POST", "/api/v2/trees/main/contents", {"requestedKeys": keys})
    assert large["contents"] == []
    long = pair.nginx.request("GET", "/api/v2/config", headers={"X-Long": "a" * 40_000})
    assert long.status == 200
    pair.nginx.request_json("GET", f"/api/v2/config?nothing={'a' * 40_000}")

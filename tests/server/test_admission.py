"""Web pages of other origins cannot write, and a local server accepts only local host names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from morag.config import ServerSettings
from morag.errors import Forbidden
from morag.server.admission import Admission
from tests.server.raw_http import GET_MAIN, read_answer
from tests.server_process import Served

if TYPE_CHECKING:
    from pathlib import Path

EMPTY = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
BRANCH = f'{{"type":"BRANCH","name":"main","hash":"{EMPTY}"}}'.encode()
JSON = {"Content-Type": "application/json"}


def create(server: Served, name: str, headers: dict[str, str]) -> int:
    path = f"/api/v2/trees?name={name}&type=BRANCH"
    return server.ask("POST", path, BRANCH, JSON | headers).status


def exists(server: Served, name: str) -> bool:
    return server.ask("GET", f"/api/v2/trees/{name}").status == 200


def host(name: str) -> bytes:
    return GET_MAIN.replace(b"Host: localhost", f"Host: {name}\r\nConnection: close".encode())


FOREIGN = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example.com"},
    {"Origin": "https://evil.example.com"},
    {"Origin": "http://localhost.evil.example.com", "Host": "localhost"},
    {"Origin": "null"},
    {"Origin": "http://localhost:8080", "Host": "localhost:19120"},
    {"Origin": "http://localhost", "Host": "localhost:19120"},
    {"Origin": "http://localhost:19120", "Host": "127.0.0.1:19120"},
    {"Origin": "http://localhost:443", "Host": "localhost"},
    {"Origin": "file://localhost", "Host": "localhost"},
    {"Origin": "localhost", "Host": "localhost"},
    {"Origin": "http://localhost", "Host": "localhost", "Sec-Fetch-Site": "cross-site"},
]
OWN = [
    {},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "same-origin"},
    {"Origin": "http://localhost:19120", "Host": "localhost:19120"},
    {"Origin": "http://localhost", "Host": "LOCALHOST:80"},
    {"Origin": "https://localhost", "Host": "localhost"},
    {"Origin": "https://localhost", "Host": "localhost:443"},
    {"Origin": "http://[::1]:1", "Host": "[::1]:1", "Sec-Fetch-Site": "same-origin"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_page_of_another_origin_cannot_write(server: Served, headers: dict[str, str]) -> None:
    assert create(server, "foreign", headers) == 403
    assert not exists(server, "foreign")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_every_method_that_may_write_is_refused(server: Served, method: str) -> None:
    headers = {"Origin": "https://evil.example.com"}
    answer = server.ask(method, f"/api/v2/trees/main@{EMPTY}", BRANCH, JSON | headers)
    error = json.loads(answer.body)
    assert (answer.status, error["status"], error["errorCode"]) == (403, 403, "FORBIDDEN")
    assert "'https://evil.example.com' may not change this catalog" in error["message"]
    assert "cors_origins" in error["message"]
    assert exists(server, "main")


@pytest.mark.parametrize("number", range(len(OWN)))
def test_programs_and_the_servers_own_pages_can_write(server: Served, number: int) -> None:
    assert create(server, f"own{number}", OWN[number]) == 200


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_reads_are_answered_but_hidden_from_the_page_by_the_browser(
    server: Served, headers: dict[str, str]
) -> None:
    for method in ("GET", "HEAD", "OPTIONS"):
        answer = server.ask(method, "/api/v2/trees/main", headers=headers)
        assert answer.status == 200
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_foreign_write_is_refused_before_its_body_is_sent(server: Served) -> None:
    head = b"POST /api/v2/trees HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n"
    with server.connect() as client:
        client.sendall(head + b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n")
        assert read_answer(client)[0] == 403
        assert client.recv(1) == b""


def test_an_upgrade_to_http_2_changes_nothing(server: Served) -> None:
    offer = {"Connection": "Upgrade", "Upgrade": "h2c"}
    assert create(server, "foreign", {"Origin": "null", **offer}) == 403
    assert create(server, "upgrading", offer) == 200


def test_pages_of_listed_origins_can_write(tmp_path: Path) -> None:
    with Served(tmp_path, "--cors-origins", "https://ui.example.com") as server:
        site = {"Sec-Fetch-Site": "cross-site"}
        assert create(server, "listed", {"Origin": "https://ui.example.com", **site}) == 200
        assert create(server, "foreign", {"Origin": "https://b.example.com", **site}) == 403
        assert create(server, "foreign", site) == 403
        assert create(server, "foreign", {"Origin": "null"}) == 403


def test_all_pages_can_write_if_all_are_listed(tmp_path: Path) -> None:
    with Served(tmp_path, "--cors-origins", "*") as server:
        for number, origin in enumerate(("https://a.example.com", "null")):
            headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
            assert create(server, f"any{number}", headers) == 200


def test_with_tls_the_servers_own_origin_is_https() -> None:
    admission = Admission(ServerSettings(tls_cert="cert.pem"), loopback_only=True)
    local = (b"host", b"localhost")
    admission.check("POST", b"/", [local, (b"origin", b"https://localhost")])
    with pytest.raises(Forbidden):
        admission.check("POST", b"/", [local, (b"origin", b"http://localhost")])


LOCAL = [
    "localhost",
    "LocalHost.:1",
    "a.localhost:80",
    "127.0.0.1",
    "127.9.8.7:1",
    "[::1]",
    "[::1]:9",
]
STRANGE = [
    "evil.example.com",
    "evil.example.com:19120",
    "localhost.evil.example.com",
    "127.0.0.1.evil.example.com",
    "evillocalhost",
    "192.168.0.1",
    "0.0.0.0",
    "[::2]",
    "",
]


@pytest.mark.parametrize("name", LOCAL)
def test_a_local_server_accepts_local_names(server: Served, name: str) -> None:
    assert server.exchange(host(name)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("path", [b"/api/v2/trees/main", b"/health/live", b"/docs", b"/nope"])
@pytest.mark.parametrize("name", STRANGE)
def test_a_local_server_refuses_other_names(server: Served, name: str, path: bytes) -> None:
    answer = server.exchange(host(name).replace(b"/api/v2/trees/main", path))
    assert answer.startswith(b"HTTP/1.1 403")
    error = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert error["errorCode"] == "FORBIDDEN"
    assert f"not '{name.removesuffix(':19120')}'; add it" in error["message"]
    assert "allowed_hosts" in error["message"]


def test_the_host_in_the_target_counts_instead_of_the_header(server: Served) -> None:
    for target, status in ((b"http://evil.example.com/", 403), (b"http://localhost:1/", 200)):
        sent = host("localhost").replace(b"GET /", b"GET " + target)
        assert int(server.exchange(sent).split()[1]) == status
        sent = sent.replace(b"http://", b"http://localhost@")
        assert int(server.exchange(sent).split()[1]) == status
        assert int(server.exchange(sent.replace(b"1.1", b"1.0")).split()[1]) == status


def test_a_probe_of_http_1_0_may_omit_the_host(server: Served) -> None:
    assert server.exchange(b"GET /health/ready HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_allowed_hosts_are_accepted(tmp_path: Path) -> None:
    with Served(tmp_path, "--allowed-hosts", "lake.example.com,*.lake.internal") as server:
        for name in ("lake.example.com", "LAKE.example.com:80", "a.b.lake.internal", *LOCAL):
            assert server.exchange(host(name)).startswith(b"HTTP/1.1 200"), name
        for name in ("a.lake.example.com", "lake.internal", "evillake.internal", *STRANGE):
            assert server.exchange(host(name)).startswith(b"HTTP/1.1 403"), name


def check_hosts(allowed: tuple[str, ...], loopback_only: bool, accepted: dict[str, bool]) -> None:
    settings = ServerSettings(allowed_hosts=allowed)
    admission = Admission(settings, loopback_only=loopback_only)
    for name, expected in accepted.items():
        headers = [(b"host", name.encode())]
        if expected:
            admission.check("GET", b"/", headers)
        else:
            with pytest.raises(Forbidden, match="allowed_hosts"):
                admission.check("GET", b"/", headers)


@pytest.mark.parametrize("allowed", [(), ("lake.example.com",)], ids=str)
@pytest.mark.parametrize("sent", [b"vm:19999", b"VM", b"[fd00::1]:19999"])
def test_the_host_in_a_refusal_is_accepted_once_it_is_allowed(
    allowed: tuple[str, ...], sent: bytes
) -> None:
    headers = [(b"host", sent)]
    with pytest.raises(Forbidden, match="allowed_hosts") as raised:
        Admission(ServerSettings(allowed_hosts=allowed), loopback_only=True).check(
            "GET", b"/", headers
        )
    named = str(raised.value).split("'")[1]
    settings = ServerSettings(allowed_hosts=(*allowed, named))
    Admission(settings, loopback_only=True).check("GET", b"/", headers)


def test_a_star_allows_every_name() -> None:
    check_hosts(("*",), True, dict.fromkeys((*LOCAL, *STRANGE), True))


def test_a_public_server_accepts_every_name() -> None:
    check_hosts((), False, dict.fromkeys((*LOCAL, *STRANGE), True))


def test_a_public_server_with_allowed_hosts_accepts_them_and_addresses() -> None:
    """Kubernetes probes a pod by its address, an image's health check by 127.0.0.1."""
    names = {"lake.example.com": True, "10.1.2.3:19120": True, "[fd00::1]:19120": True}
    refused = {"evil.example.com": False, "10.1.2.3.example.com": False}
    check_hosts(("lake.example.com",), False, dict.fromkeys(LOCAL, True) | names | refused)

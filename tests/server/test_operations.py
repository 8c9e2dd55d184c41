"""Features for operators: health, access log, TLS, CORS, workers, remote stores."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from urllib.request import urlopen

import pytest

from tests.process_tree import children
from tests.server.raw_http import GET_MAIN, read_all, read_answer
from tests.server.remote_store import install, remote_url
from tests.server_process import PATIENCE_SECONDS, Answer, Served, run

ORIGIN = {"Origin": "https://ui.example.com"}
PREFLIGHT = ORIGIN | {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "content-type",
}


def test_health(server: Served) -> None:
    for path in ("/health/live", "/health/ready"):
        answer = server.ask("GET", path)
        assert (answer.status, json.loads(answer.body)) == (200, {"status": "UP"})
        assert answer.headers["cache-control"] == "no-store"
        assert server.ask("HEAD", path).body == b""
    assert server.ask("GET", "/health/nope").status == 404
    assert server.ask("POST", "/health/live").status == 404


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    directory = tmp_path_factory.mktemp("remote")
    return directory, install(directory / "installed")


def test_a_server_is_ready_only_while_its_store_answers(
    remote: tuple[Path, dict[str, str]],
) -> None:
    directory, extra = remote
    with Served(directory, store=remote_url(directory), extra=extra) as server:
        assert server.ask("GET", "/health/ready").status == 200
        (directory / "down").touch()
        answer = server.ask("GET", "/health/ready")
        assert answer.status == 503
        shown = json.loads(answer.body)
        assert shown == {"status": "DOWN", "reason": "The store failed with OSError"}
        assert server.ask("GET", "/health/live").status == 200
        (directory / "down").unlink()
        assert server.ask("GET", "/health/ready").status == 200


def test_requests_to_a_remote_store_are_answered_in_order(
    remote: tuple[Path, dict[str, str]],
) -> None:
    """Each request is answered by a thread, but in order on one connection."""
    directory, extra = remote
    with Served(directory, store=remote_url(directory), extra=extra) as server:
        with server.connect() as client:
            client.sendall(30 * GET_MAIN.replace(b"main", b"nope") + GET_MAIN)
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answers = read_all(client).split(b"HTTP/1.1 ")[1:]
        assert [part[:3] for part in answers] == 30 * [b"404"] + 2 * [b"200"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_access_log(tmp_path: Path, form: str) -> None:
    with Served(tmp_path, "--access-log", form) as server:
        assert (
            server.ask("GET", "/api/v2/trees?filter=hidden", headers={"X": "hidden"}).status == 400
        )
        assert server.ask("POST", "/api/v2/nope", b"hidden").status == 404
        assert server.exchange(b"NONSENSE\r\n\r\n").startswith(b"HTTP/1.1 400")
    lines = server.errors().splitlines()
    assert "hidden" not in server.errors()
    assert len(lines) == 3
    if form == "json":
        first, second, third = (json.loads(line) for line in lines)
        assert " ".join(first) == "time client method path status bytes millis"
        assert first["client"] == "127.0.0.1"
        assert [first["method"], first["path"], first["status"]] == ["GET", "/api/v2/trees", 400]
        assert first["bytes"] > 50
        assert first["millis"] >= 0
        assert [second["method"], second["status"]] == ["POST", 404]
        assert [third["path"], third["status"]] == ["-", 400]
    else:
        shown = r"20\S+T\S+ 127.0.0.1 GET /api/v2/trees 400 \d+ B \d+\.\d+ ms"
        assert re.fullmatch(shown, lines[0])


def test_the_access_log_shows_the_client_behind_a_trusted_proxy(tmp_path: Path) -> None:
    flags = ("--access-log", "json", "--trusted-proxies", "127.0.0.0/8")
    with Served(tmp_path, *flags) as server:
        forwarded = {"X-Forwarded-For": "6.6.6.6, 203.0.113.9"}
        assert server.ask("GET", "/api/v2/trees/main", headers=forwarded).status == 200
    assert json.loads(server.errors())["client"] == "203.0.113.9"


def test_pages_of_other_origins_are_not_allowed_by_default(server: Served) -> None:
    answer = server.ask("GET", "/api/v2/trees/main", headers=ORIGIN)
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert (
        server.ask("OPTIONS", "/api/v2/trees", headers=PREFLIGHT).headers.keys()
        & {"access-control-allow-origin"}
        == set()
    )


def allowed(answer: Answer) -> str | None:
    return answer.headers.get("access-control-allow-origin")


def test_pages_of_listed_origins_are_allowed(tmp_path: Path) -> None:
    with Served(
        tmp_path, "--cors-origins", "https://a.example.com,https://ui.example.com"
    ) as server:
        answer = server.ask("GET", "/api/v2/trees/main", headers=ORIGIN)
        assert allowed(answer) == "https://ui.example.com"
        assert answer.headers["vary"] == "origin"
        assert "etag" in answer.headers["access-control-expose-headers"]
        before = server.ask("OPTIONS", "/api/v2/trees", headers=PREFLIGHT)
        assert (before.status, allowed(before)) == (204, "https://ui.example.com")
        assert "POST" in before.headers["access-control-allow-methods"]
        assert before.headers["access-control-allow-headers"] == "content-type"
        stranger = server.ask("GET", "/api/v2/trees/main", headers={"Origin": "https://b.com"})
        assert (stranger.status, allowed(stranger)) == (200, None)
        assert stranger.headers["vary"] == "origin"


def test_all_origins_can_be_allowed(tmp_path: Path) -> None:
    with Served(tmp_path, "--cors-origins", "*") as server:
        assert allowed(server.ask("GET", "/api/v2/trees/nope", headers=ORIGIN)) == "*"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    directory = tmp_path_factory.mktemp("tls")
    made = f"-x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {directory}/key.pem"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = [openssl, "req", *made.split(), *names, "-out", str(directory / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)
    return directory


@pytest.mark.parametrize("workers", ["1", "2"])
def test_tls(tmp_path: Path, certificate: Path, workers: str) -> None:
    cert, key = str(certificate / "cert.pem"), str(certificate / "key.pem")
    flags = ("--tls-cert", cert, "--tls-key", key, "--workers", workers)
    with Served(tmp_path, *flags, store=f"sqlite:{tmp_path / 'morag.db'}", quiet=True) as server:
        assert server.scheme == "https"
        trusting = ssl.create_default_context(cafile=cert)
        url = f"https://127.0.0.1:{server.port}/api/v2/config"
        with urlopen(url, context=trusting, timeout=30) as answer:
            assert json.load(answer)["defaultBranch"] == "main"
        with server.connect() as plain:
            plain.sendall(GET_MAIN)
            assert not read_all(plain).startswith(b"HTTP")
        with trusting.wrap_socket(server.connect(), server_hostname="127.0.0.1") as client:
            client.sendall(GET_MAIN)
            assert read_answer(client)[0] == 200
            client.sendall(b"NONSENSE\r\n\r\n")
            assert read_answer(client)[0] == 400


def test_a_certificate_with_the_wrong_key(tmp_path: Path, certificate: Path) -> None:
    cert = str(certificate / "cert.pem")
    ended = run("serve", "--tls-cert", cert, "--tls-key", cert, directory=tmp_path)
    assert ended.returncode == 1
    assert "--tls-cert and --tls-key name PEM files" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_workers_share_a_store_and_the_port(tmp_path: Path) -> None:
    with Served(tmp_path, "--workers", "2", store=f"sqlite:{tmp_path / 'morag.db'}") as server:
        children = children_of(server.process.pid)
        assert len(children) == 2
        main = json.loads(server.ask("GET", "/api/v2/trees/main").body)["reference"]
        body = json.dumps(main).encode()

        def create(number: int) -> int:
            path = f"/api/v2/trees?name=b{number}&type=BRANCH"
            return server.ask("POST", path, body, {"Content-Type": "application/json"}).status

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(create, range(16))) == 16 * [200]
        listed = json.loads(server.ask("GET", "/api/v2/trees").body)["references"]
        assert len(listed) == 17
        before, killed = children, children[0]
        os.kill(killed, signal.SIGKILL)
        while len(children) < 2 or killed in children:  # Until a new worker has replaced it.
            assert server.ask("GET", "/api/v2/trees/main").status == 200
            children = children_of(server.process.pid)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        successor = next(iter(set(children) - set(before)))
        line = f"Worker {killed} died (by signal 9); {successor} takes its place\n"
        assert server.errors() == line
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def test_workers_are_replaced_one_by_one_on_sighup(tmp_path: Path) -> None:
    with Served(tmp_path, "--workers", "2", store=f"sqlite:{tmp_path / 'morag.db'}") as server:
        before = set(children_of(server.process.pid))
        server.process.send_signal(signal.SIGHUP)
        while before & set(children_of(server.process.pid)):
            with suppress(ConnectionError):  # A worker that stops closes idle connections.
                assert server.ask("GET", "/api/v2/trees/main").status == 200
        server.process.terminate()
        assert server.process.wait(30) == 0
        assert server.errors() == ""


def children_of(pid: int) -> list[int]:
    """The running workers, without the resource tracker."""
    found = []
    for child in children(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


def test_running_out_of_file_descriptors_is_logged_once(tmp_path: Path) -> None:
    with Served(tmp_path, open_files=64) as server:
        idle = server.resources()
        for _ in range(2):
            clients = [server.connect() for _ in range(100)]
            await_words(server, "No file descriptor is left (the limit is 64)")
            spent_before = cpu_seconds(server)
            sleep(0.5)
            assert cpu_seconds(server) - spent_before < 0.25, "the server retries in a busy loop"
            for client in clients:
                client.close()
            assert server.becomes_idle(idle, PATIENCE_SECONDS)
            assert server.ask("GET", "/api/v2/trees/main").status == 200
        sleep(1.1)  # The server retries every second.
    assert server.errors().count("\n") == 1


def await_words(server: Served, words: str) -> None:
    end = monotonic() + PATIENCE_SECONDS
    while words not in server.errors():
        assert monotonic() < end, f"the log does not have {words!r}"
        sleep(0.02)


def cpu_seconds(server: Served) -> float:
    spent = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(spent[11]) + int(spent[12])) / os.sysconf("SC_CLK_TCK")

"""How a server starts: the ready line, and one line with advice when it cannot."""

from __future__ import annotations

import re
import signal
import socket
from typing import TYPE_CHECKING

import pytest

import morag
from tests.server.far import far_url, install
from tests.server.serving import Served, run

if TYPE_CHECKING:
    from pathlib import Path


def refused(directory: Path, *arguments: str, code: int = 1) -> str:
    """The one line that such a start leaves."""
    ended = run(*arguments, directory=directory)
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == ""
    assert re.fullmatch(r"morag: .+\n", ended.stderr), ended.stderr
    return ended.stderr


def test_the_ready_line_is_the_first_and_tells_the_real_port(server: Served) -> None:
    assert server.ready_line == f"morag ready on http://127.0.0.1:{server.port} store=memory:\n"
    assert server.port > 0
    assert server.ask("GET", "/api/v2/config").status == 200


def test_without_a_store_it_makes_one_beside_it(tmp_path: Path) -> None:
    with Served(tmp_path, store=None) as server:
        assert server.store == "rocksdb:./morag-data"
        assert (tmp_path / "morag-data").is_dir()


def test_settings_come_from_the_environment_and_the_file_too(tmp_path: Path) -> None:
    (tmp_path / "morag.toml").write_text('default_branch = "trunk"\nstore = "sqlite:./x.db"\n')
    extra = {"MORAG_STORE": "memory:", "MORAG_HOST": "localhost"}
    with Served(tmp_path, store=None, extra=extra) as server:
        assert server.ready_line == f"morag ready on http://localhost:{server.port} store=memory:\n"
        assert server.ask("GET", "/api/v2/trees/trunk").status == 200


def test_passwords_are_never_shown(tmp_path: Path) -> None:
    extra = install(tmp_path / "installed")
    with Served(tmp_path, "--access-log", "text", store=far_url(tmp_path), extra=extra) as server:
        assert server.store == f"far://somebody:***@machine{tmp_path}/far.db"
        assert server.ask("GET", "/api/v2/trees/main").status == 200
        (tmp_path / "down").touch()
        failed = server.ask("GET", "/api/v2/trees/main")
        assert failed.status == 500
        assert b"secret" not in failed.body
        (tmp_path / "down").unlink()
    for url in ("nowhere://me:secret@host/db", "sqlite:x?password=secret", "me:secret@host"):
        assert "secret" not in refused(tmp_path, "serve", "--store", url)


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refused(tmp_path, "serve", "--port", str(port), "--store", "rocksdb:./data")
    assert f"Port {port} of 127.0.0.1 is in use" in told
    assert "--port" in told
    assert not (tmp_path / "data").exists(), "nothing was started"


def test_a_store_in_use(tmp_path: Path) -> None:
    with morag.open(f"rocksdb:{tmp_path / 'data'}"):
        told = refused(tmp_path, "serve", "--port", "0", "--store", "rocksdb:./data")
    assert "in use by another process" in told


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("--store", "nonsense"), "is not a store URL; write for example rocksdb:./data"),
        (("--store", "mongodb://host"), "No backend is installed for 'mongodb:'"),
        (("--host", "no.such.host.invalid"), "give an address of this machine by --host"),
        (("--host", "192.0.2.1"), "give an address of this machine by --host"),
        (("--tls-cert", "missing.pem"), "--tls-cert and --tls-key name PEM files"),
        (("--workers", "2"), "take --workers 1, or a store that processes can share"),
        (("--workers", "2", "--store", "memory:"), "cannot share 'memory:'"),
    ],
)
def test_what_cannot_be_served(tmp_path: Path, arguments: tuple[str, ...], advice: str) -> None:
    assert advice in refused(tmp_path, "serve", "--port", "0", *arguments)
    assert list(tmp_path.iterdir()) == [], "nothing was started"


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("serve", "--port", "http"), "--port must be a whole number, not 'http'"),
        (("serve", "--port", "70000"), "must be at most 65535, not 70000 (set by --port)"),
        (("serve", "--access-log", "xml"), "must be off, text or json"),
        (("serve", "--config", "missing.toml"), "There is no file 'missing.toml'"),
    ],
)
def test_settings_that_cannot_be_right(
    tmp_path: Path, arguments: tuple[str, ...], advice: str
) -> None:
    assert advice in refused(tmp_path, *arguments, code=2)


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("serve", "--nonsense"), ("--nonsense",)])
def test_commands_that_do_not_exist(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ended = run(*arguments, directory=tmp_path)
    assert ended.returncode == 2
    assert "usage: morag" in ended.stderr


def test_the_version_and_the_help(tmp_path: Path) -> None:
    assert run("--version", directory=tmp_path).stdout == "morag 0.1.0\n"
    assert "serve" in run("--help", directory=tmp_path).stdout
    explained = run("serve", "--help", directory=tmp_path).stdout
    assert "--cache-bytes" in explained
    assert "0.0.0.0 is every address" in explained


def test_localhost_is_all_addresses_of_that_name(tmp_path: Path) -> None:
    with Served(tmp_path, "--host", "localhost") as server:
        assert server.host == "localhost"
        with socket.create_connection(("127.0.0.1", server.port)):
            pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_peace(tmp_path: Path, number: signal.Signals) -> None:
    with Served(tmp_path, store="rocksdb:./data") as server, server.connect() as idle:
        server.process.send_signal(number)
        assert server.process.wait(30) == 0
        assert idle.recv(1) == b""
        assert server.errors() == ""
    with morag.open(f"rocksdb:{tmp_path / 'data'}") as repo:
        assert repo.default_branch == "main"

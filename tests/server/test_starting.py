"""How a server starts: the ready line, and one line with advice when it cannot."""

from __future__ import annotations

import os
import re
import signal
import socket
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol

import pytest

import morag
from morag import Settings
from morag.cli.main import main
from morag.config import ServerSettings
from morag.config_sources import SettingInvalid, load
from morag.server import running
from tests.server.raw_http import GET_MAIN, read_answer
from tests.server.remote_store import install, remote_url
from tests.server_process import Served, run

if TYPE_CHECKING:
    from pathlib import Path


class Refuse(Protocol):
    def __call__(self, *arguments: str, code: int = 1) -> str: ...


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refuse:
    """Run the CLI in this process, and return the one line of a refused start."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("MORAG_")]:
        monkeypatch.delenv(name)

    def refuse(*arguments: str, code: int = 1) -> str:
        assert main(["serve", "--port", "0", *arguments]) == code
        shown = capsys.readouterr()
        assert shown.out == ""
        assert re.fullmatch(r"morag: .+\n", shown.err), shown.err
        return shown.err

    return refuse


def test_the_ready_line_comes_first_and_has_the_real_port(server: Served) -> None:
    assert server.ready_line == f"morag ready on http://127.0.0.1:{server.port} store=memory:\n"
    assert server.port > 0
    assert server.ask("GET", "/api/v2/config").status == 200


def test_without_a_store_it_creates_one_in_the_working_directory(tmp_path: Path) -> None:
    with Served(tmp_path, store=None) as server:
        assert server.store == "rocksdb:./morag-data"
        assert (tmp_path / "morag-data").is_dir()


def test_settings_come_from_the_environment_and_the_file_too(tmp_path: Path) -> None:
    (tmp_path / "morag.toml").write_text('default_branch = "trunk"\nstore = "sqlite:./x.db"\n')
    extra = {"MORAG_STORE": "memory:", "MORAG_HOST": "localhost"}
    with Served(tmp_path, store=None, extra=extra) as server:
        assert server.ready_line == f"morag ready on http://localhost:{server.port} store=memory:\n"
        assert server.ask("GET", "/api/v2/trees/trunk").status == 200


def test_passwords_are_never_shown(tmp_path: Path, refused: Refuse) -> None:
    extra = install(tmp_path / "installed")
    with Served(
        tmp_path, "--access-log", "text", store=remote_url(tmp_path), extra=extra
    ) as server:
        assert server.store == f"remote://user:***@machine{tmp_path}/remote.db"
        assert server.ask("GET", "/api/v2/trees/main").status == 200
        (tmp_path / "down").touch()
        failed = server.ask("GET", "/api/v2/trees/main")
        assert failed.status == 500
        assert b"secret" not in failed.body
        assert "cannot reach remote://user:***@machine" in server.errors()
        assert "secret" not in server.errors()
    ended = run(
        "serve", "--store", remote_url(tmp_path), "--port", "0", directory=tmp_path, extra=extra
    )
    assert ended.returncode == 1
    assert ended.stderr == (
        f"morag: Cannot open 'remote://user:***@machine{tmp_path}/remote.db'"
        " (OSError: cannot reach remote://user:***@machine)\n"
    )
    for url in ("nowhere://me:secret@host/db", "sqlite:x?password=secret", "me:secret@host"):
        assert "secret" not in refused("--store", url)


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("serve", "--port", str(port), "--store", "rocksdb:./data", directory=tmp_path)
    advice = "stop the program that uses it, or set --port to another one (0 for any free port)"
    assert ended.stderr == f"morag: Port {port} of 127.0.0.1 is in use; {advice}\n"
    assert (ended.returncode, ended.stdout) == (1, "")
    assert not (tmp_path / "data").exists(), "the server created files"


def test_a_store_in_use_is_reported(tmp_path: Path) -> None:
    with Served(tmp_path, store="rocksdb:./data"):
        ended = run("serve", "--port", "0", "--store", "rocksdb:./data", directory=tmp_path)
    assert ended.returncode == 1
    assert "in use by another process" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("--store", "nonsense"), "is not a store URL; write for example rocksdb:./data"),
        (("--store", "elephant://host"), "'elephant:' is not a kind of store; known are: "),
        (("--host", "no.such.host.invalid"), "set --host to an address of this machine"),
        (("--host", "192.0.2.1"), "set --host to an address of this machine"),
        (("--tls-cert", "missing.pem"), "--tls-cert and --tls-key name PEM files"),
        (("--workers", "2"), "use --workers 1, or a store that processes can share"),
        (("--workers", "2", "--store", "memory:"), "cannot share 'memory:'"),
    ],
)
def test_a_start_that_cannot_succeed_is_refused_with_the_reason(
    tmp_path: Path, refused: Refuse, arguments: tuple[str, ...], advice: str
) -> None:
    assert advice in refused(*arguments)
    assert list(tmp_path.iterdir()) == [], "the server created files"


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("--port", "http"), "--port must be a whole number, not 'http'"),
        (("--port", "70000"), "from 0 to 65535, not 70000 (set by --port)"),
        (("--access-log", "xml"), "must be off, text or json"),
        (("--threads", "1000000"), "from 1 to 1024, not 1000000 (set by --threads)"),
        (("--config", "missing.toml"), "There is no file 'missing.toml'"),
    ],
)
def test_invalid_settings_are_refused(
    refused: Refuse, arguments: tuple[str, ...], advice: str
) -> None:
    assert advice in refused(*arguments, code=2)


def test_variables_that_kubernetes_sets_for_a_service_are_no_settings(tmp_path: Path) -> None:
    shown = {
        "MORAG_SERVICE_HOST": "10.0.0.1",
        "MORAG_SERVICE_PORT": "19120",
        "MORAG_SERVICE_PORT_HTTP": "19120",
        "MORAG_PORT": "tcp://10.0.0.1:19120",
        "MORAG_PORT_19120_TCP": "tcp://10.0.0.1:19120",
        "MORAG_PORT_19120_TCP_PROTO": "tcp",
        "MORAG_PORT_19120_TCP_PORT": "19120",
        "MORAG_PORT_19120_TCP_ADDR": "10.0.0.1",
        "MORAG_UI_SERVICE_HOST": "10.0.0.2",
        "MORAG_UI_PORT": "tcp://10.0.0.2:80",
    }
    assert load({}, environment=shown, directory=tmp_path) == load(
        {}, environment={}, directory=tmp_path
    )
    for name, value in {"MORAG_SERVICE": "x", "MORAG_UI_PORT": "80", "MORAG_PORT_X": "1"}.items():
        with pytest.raises(SettingInvalid, match=f"There is no setting {name}"):
            load({}, environment={name: value}, directory=tmp_path)
    assert load({}, environment={"MORAG_PORT": "80"}, directory=tmp_path).server.port == 80


@pytest.mark.parametrize("arguments", [["nonsense"], ["serve", "--nonsense"], ["--nonsense"]])
def test_unknown_commands_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: morag")


URL = "postgres://u:pw@h/db"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["serve", "--stoer", URL], "there is no flag --stoer (did you mean --store?)"),
        (["serve", f"--stoer={URL}"], "there is no flag --stoer (did you mean --store?)"),
        (["serve", "--bogus"], "there is no flag --bogus\n"),
        (["serve", "-store", URL], "there is no flag -store (did you mean --store?)"),
        (["serve", "--max_head_bytes", "1"], "(did you mean --max-head-bytes?)"),
        (["serve", "--zzz"], "there is no flag --zzz\n"),
        (["serve", URL], "unexpected 'postgres://u:***@h/db': settings are given by flags"),
        (["serve", "u:pw@h/db"], "unexpected 'u:***@h/db': settings are given by flags"),
        ([URL], "invalid choice: 'postgres://u:***@h/db'"),
        (["--stoer", URL], "'postgres://u:***@h/db'"),
    ],
)
def test_a_similar_flag_is_suggested_and_no_password_is_repeated(
    arguments: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert shown in error
    assert "pw" not in error


def test_a_missing_command_is_refused(tmp_path: Path) -> None:
    ended = run(directory=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.startswith("usage: morag")


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("--version", f"morag {version('morag')}\n"),
        ("--help", "serve     Serve the catalog over HTTP"),
        ("serve --help", "--cache-bytes BYTES"),
        ("serve --help", "0.0.0.0 means every address"),
    ],
)
def test_help(argument: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argument.split())
    assert ended.value.code == 0
    assert shown in capsys.readouterr().out


def test_localhost_is_all_addresses_of_that_name(tmp_path: Path) -> None:
    with Served(tmp_path, "--host", "localhost", quiet=True) as server:
        assert server.host == "localhost"
        with socket.create_connection(("127.0.0.1", server.port)):
            pass


def test_a_server_that_others_can_reach_warns_that_it_has_no_authentication(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The test does not run the server, so that no port is open to the network."""
    monkeypatch.setattr(running, "_run_one", lambda _, lifespan, __: lifespan.close() or 0)
    assert running.serve(Settings(), ServerSettings(port=0, store="memory:")) == 0
    assert caplog.text == ""
    everywhere = ServerSettings(host="0.0.0.0", port=0, store="memory:")
    assert running.serve(Settings(), everywhere) == 0
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "no authentication yet: everyone who can reach port" in record.getMessage()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_with_exit_code_0(tmp_path: Path, number: signal.Signals) -> None:
    with Served(tmp_path, store="rocksdb:./data") as server, server.connect() as idle:
        idle.sendall(GET_MAIN)
        assert read_answer(idle)[0] == 200
        server.process.send_signal(number)
        assert server.process.wait(30) == 0
        assert idle.recv(1) == b""
        assert server.errors() == ""
    with morag.open(f"rocksdb:{tmp_path / 'data'}") as repo:
        assert repo.default_branch == "main"

"""The README's examples do what they show, as often as they are run, and leave nothing behind."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from morag.client import Client
from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).parents[1]
_TEXT: Final = (_ROOT / "README.md").read_text()
_EXAMPLE: Final = re.compile(r"```python\n(.*?)```", re.DOTALL)
_COMMANDS: Final = re.compile(r"^    (.*)$", re.MULTILINE)
_TARGET: Final = re.compile(r"^make ([a-z-]+)", re.MULTILINE)
# tests/interop runs the Spark example, which needs Iceberg's jar.
_BY_CLIENT, _IN_PROCESS, _ = _EXAMPLE.findall(_TEXT)
_SERVER: Final = "http://127.0.0.1:19120"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as server:
        yield server


def test_the_client_example_works_again_and_again_and_leaves_nothing(
    server: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _state(server)
    for _ in range(2):
        run(_BY_CLIENT.replace(_SERVER, server.url))
        assert capsys.readouterr().out == "['tried']\n"
    assert _state(server) == before


def test_the_library_example_works_again_and_again_without_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        run(_IN_PROCESS)
        changed, log = capsys.readouterr().out.splitlines()
        assert changed == "['sales.orders']"
        assert log.startswith("['Merged dev at ")
        assert log.endswith(", 'first table']")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="this machine has no curl")
def test_the_example_by_http_works_again_and_again_and_leaves_nothing(server: Served) -> None:
    before = _state(server)
    commands = _section("Use it by HTTP").replace(_SERVER, server.url).replace("curl", "curl -fsS")
    for _ in range(2):
        done = subprocess.run(
            ["sh", "-eu", "-c", commands], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert '"tried"' in done.stdout
    assert _state(server) == before


def test_every_target_of_make_exists() -> None:
    targets = set(_TARGET.findall(_COMMANDS.sub(r"\1", _TEXT)))
    assert {"serve", "spark", "setup", "test"} <= targets
    makefile = (_ROOT / "Makefile").read_text()
    for target in targets:
        assert re.search(f"^{target}:.*## ", makefile, re.MULTILINE), target


def _section(title: str) -> str:
    """The indented lines of a section."""
    text = _TEXT.split(f"## {title}\n")[1].split("\n## ")[0]
    return "\n".join(_COMMANDS.findall(text))


def _state(server: Served) -> list[tuple[str | None, str]]:
    with Client(server.url) as client:
        return [(each.name, each.hash) for each in client.references.list()]


def run(example: str) -> None:
    exec(compile(example, "README.md", "exec"), {})

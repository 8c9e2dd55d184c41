"""The README's examples do what they show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.server_process import Served

if TYPE_CHECKING:
    import pytest

_ROOT: Final = Path(__file__).parents[1]
_EXAMPLE: Final = re.compile(r"```python\n(.*?)```", re.DOTALL)
# tests/interop runs the Spark example, which needs Iceberg's jar.
_BY_CLIENT, _IN_PROCESS, _ = _EXAMPLE.findall((_ROOT / "README.md").read_text())


def test_the_client_example_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Served(tmp_path) as server:
        run(_BY_CLIENT.replace("http://127.0.0.1:19120", server.url))
    assert capsys.readouterr().out == "[ContentKey(elements=('orders',))]\n"


def test_the_library_example_works_without_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run(_IN_PROCESS)
    changed, log = capsys.readouterr().out.splitlines()
    assert changed == "['sales.orders']"
    assert log.startswith("['Merged dev at ")
    assert log.endswith(", 'first table']")
    assert (tmp_path / "data").is_dir()


def run(example: str) -> None:
    exec(compile(example, "README.md", "exec"), {})

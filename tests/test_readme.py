"""The README's example does what it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    changed, log = capsys.readouterr().out.splitlines()
    assert changed == "['sales.orders']"
    assert log.startswith("['Merged dev at ")
    assert log.endswith(", 'first table']")
    assert (tmp_path / "data").is_dir()

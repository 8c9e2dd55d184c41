"""The steps of the Dockerfile, run without Docker, build a working environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Final

import pytest

from tests.deploy.tools import DEPLOY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The test installs dozens of packages.
pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1800)]

_ABSOLUTE: Final = re.compile(r"(?<!\S)/(?=\w)")
_LOAD_ALL: Final = """
from importlib.metadata import entry_points
print(*sorted(each.name for each in entry_points(group="morag.backends") if each.load().load()))
"""


def test_the_steps_build_a_server_with_all_stores(tmp_path: Path) -> None:
    stages = dict(stages_of((DEPLOY / "Dockerfile").read_text()))
    assert list(stages) == ["wheel", "environment", ""]
    for name in ("wheel", "environment"):
        build(tmp_path, name, stages[name])
    programs = tmp_path / "environment" / "opt" / "morag" / "bin"
    version = subprocess.run([programs / "morag", "--version"], capture_output=True, check=True)
    assert version.stdout.startswith(b"morag ")
    load = [str(programs / "python"), "-c", _LOAD_ALL]
    loaded = subprocess.run(load, capture_output=True, text=True, check=True, cwd=tmp_path)
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    assert loaded.stdout.split() == sorted(project["entry-points"]["morag.backends"])


def build(directory: Path, name: str, steps: list[tuple[str, str]]) -> None:
    """Run the steps of a stage in a directory that stands for its root."""
    root = directory / name
    work = root
    python = directory / f"{name}-python"
    subprocess.run([sys.executable, "-m", "venv", python], check=True)
    environment = {**os.environ, "PATH": f"{python}/bin:{os.environ['PATH']}"}
    root.mkdir()
    for word, rest in steps:
        if word == "WORKDIR":
            work = root / rest.lstrip("/")
            work.mkdir(parents=True)
        elif word == "COPY":
            *sources, to = rest.split()
            origin = DEPLOY.parent
            if sources[0].startswith("--from="):
                origin = directory / sources.pop(0).removeprefix("--from=")
            for source in sources:
                copy(origin / source.lstrip("/"), _under(root, work, to))
        else:
            assert word == "RUN", word
            command = _ABSOLUTE.sub(f"{root}/", rest)
            subprocess.run(command, shell=True, cwd=work, env=environment, check=True)


def copy(source: Path, to: Path) -> None:
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, to, ignore=ignored, dirs_exist_ok=True)
    else:
        shutil.copy(source, to)


def stages_of(dockerfile: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The name of each stage, and its steps: an instruction and its arguments."""
    text = re.sub(r"^#.*\n", "", dockerfile, flags=re.MULTILINE).replace("\\\n", " ")
    for stage in re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]:
        base, *lines = stage.strip().splitlines()
        steps = [line.split(maxsplit=1) for line in lines if line]
        yield base.partition(" AS ")[2], [(word, rest) for word, rest in steps]


def _under(root: Path, work: Path, path: str) -> Path:
    return root / path.lstrip("/") if path.startswith("/") else work / path

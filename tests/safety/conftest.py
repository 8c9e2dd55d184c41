"""Fixtures of several modules: stores left by killed processes, and stores without `apply`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.safety.killed_stores import copied, make

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module", params=["on", "off"], ids=["sync", "no sync"])
def sync(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def killed(
    request: pytest.FixtureRequest, sync: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A store left by a killed process, with the scheme and file name in the module's `KILLED`."""
    scheme, name = request.module.KILLED
    store: Path = tmp_path_factory.mktemp("killed") / name
    make(f"{scheme}:{store}?sync={sync}")
    return store


@pytest.fixture(params=[False, True], ids=["apply", "weak"])
def weak(request: pytest.FixtureRequest) -> bool:
    """Whether the backend lacks `apply`, so that commits insert rows and then swap the ref."""
    return bool(request.param)


@pytest.fixture
def store(killed: Path, tmp_path: Path) -> Path:
    return copied(killed, tmp_path / "copy")

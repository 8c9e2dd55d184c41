"""Repositories for the tests of the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import morag
from tests.rules.operations import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from morag import Repository


@pytest.fixture
def repo() -> Iterator[Repository]:
    with morag.open("memory:") as repo:
        yield repo


@pytest.fixture(params=["memory:", "rocksdb:{}?sync=off", "sqlite:{}/morag.db?sync=off"])
def any_repo(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Repository]:
    """A repository on each embedded store, for rules that could depend on the store."""
    with morag.open(request.param.format(tmp_path)) as repo:
        yield repo


@pytest.fixture
def store() -> Store:
    return Store()

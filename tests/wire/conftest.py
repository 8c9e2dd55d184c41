from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import morag
from tests.wire.talk import Talk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag import Repository


@pytest.fixture
def repository() -> Iterator[Repository]:
    with morag.open("memory:") as repository:
        yield repository


@pytest.fixture
def talk(repository: Repository) -> Talk:
    return Talk(repository)

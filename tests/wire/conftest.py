from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import morag
from tests.wire.json_client import JsonClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag import Repository


@pytest.fixture
def repository() -> Iterator[Repository]:
    with morag.open("memory:") as repository:
        yield repository


@pytest.fixture
def client(repository: Repository) -> JsonClient:
    return JsonClient(repository)

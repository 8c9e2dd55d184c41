"""Morag answers every recorded conversation like Nessie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import morag
from tests.wire.api_calls import api_caller
from tests.wire.transcripts import Scenario, replay, scenarios

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_we_answer_like_nessie(scenario: Scenario) -> None:
    with morag.open("memory:") as repository:
        replay(scenario, api_caller(repository))


@pytest.mark.parametrize("store", ["rocksdb", "sqlite"])
def test_we_answer_like_nessie_on_one_repository(store: str, tmp_path: Path) -> None:
    """On one repository, in the recorded order, which the global scenarios need."""
    with morag.open(f"{store}:{tmp_path / 'data'}?sync=off") as repository:
        ask = api_caller(repository)
        for scenario in scenarios():
            replay(scenario, ask)

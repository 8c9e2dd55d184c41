"""Every recorded conversation with the original, held again with us."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import morag
from tests.wire.asking import asking
from tests.wire.transcripts import Scenario, replay, scenarios

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_we_answer_like_the_original(scenario: Scenario) -> None:
    with morag.open("memory:") as repository:
        replay(scenario, asking(repository))


@pytest.mark.parametrize("store", ["rocksdb", "sqlite"])
def test_we_answer_like_the_original_in_one_go(store: str, tmp_path: Path) -> None:
    """On one repository, in the recorded order, which is what the global ones need."""
    with morag.open(f"{store}:{tmp_path / 'data'}?sync=off") as repository:
        ask = asking(repository)
        for scenario in scenarios():
            replay(scenario, ask)

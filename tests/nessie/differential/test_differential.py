"""Nessie and Morag answer the same random requests the same way.

A failing seed reports all differences that it found. The date chooses the seeds
(`tests/sampling.py`). To run others, or for longer:
`DIFFERENTIAL_SEEDS="7 8" DIFFERENTIAL_STEPS=3000 make test-nessie ARGS="-k differential -s"`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from tests.nessie.differential.known_differences import (
    BAD_INPUT,
    JAVA_TEXT,
    MERGED_RENAME,
    TYPE_CHANGE,
)
from tests.nessie.differential.run import run
from tests.sampling import seeds

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nessie

_CHOSEN_SEEDS: Final = os.environ.get("DIFFERENTIAL_SEEDS", "").split()
_SEEDS: Final = list(map(int, _CHOSEN_SEEDS)) or seeds("differential seeds")
_STEPS: Final = int(os.environ.get("DIFFERENTIAL_STEPS", "1500"))


@pytest.mark.parametrize("seed", _SEEDS, ids="seed{}".format)
def test_morag_and_nessie_give_the_same_answers(seed: int, tmp_path: Path) -> None:
    outcome = run(seed, _STEPS, tmp_path)
    assert not outcome.differences, str(outcome)
    assert outcome.steps == _STEPS
    # Without a request that meets the fault, a repaired Nessie would go unnoticed.
    for fault in (TYPE_CHANGE, MERGED_RENAME, BAD_INPUT):
        assert outcome.known[fault], str(outcome)


def test_nessie_does_not_differ_from_itself(tmp_path: Path) -> None:
    """A difference between two Nessies is a fault of the comparison, not of Morag."""
    outcome = run(0, 400, tmp_path, twins=True)
    assert not outcome.differences, str(outcome)
    assert outcome.known[JAVA_TEXT]
    assert not outcome.known[MERGED_RENAME]

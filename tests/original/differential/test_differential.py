"""The original and Morag answer the same random requests the same way.

A seed fails with everything that it found. To run others, or for longer:
`DIFFERENTIAL_SEEDS="7 8" DIFFERENTIAL_STEPS=3000 make test-original ARGS="-k differential -s"`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from tests.original.differential import servers
from tests.original.differential.known import BAD_INPUT, JAVA_TEXT, MERGED_RENAME, TYPE_CHANGE
from tests.original.differential.run import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.original

_SEEDS: Final = [int(seed) for seed in os.environ.get("DIFFERENTIAL_SEEDS", "1 2 3 4").split()]
_STEPS: Final = int(os.environ.get("DIFFERENTIAL_STEPS", "1500"))


@pytest.mark.parametrize("seed", _SEEDS, ids="seed{}".format)
def test_nobody_can_tell_which_is_which(seed: int, tmp_path: Path) -> None:
    outcome = run(seed, _STEPS, tmp_path)
    assert not outcome.differences, str(outcome)
    assert outcome.steps == _STEPS
    # A fault that is never met would not be seen to be mended.
    for fault in (TYPE_CHANGE, MERGED_RENAME, BAD_INPUT):
        assert outcome.known[fault], str(outcome)


def test_the_original_does_not_differ_from_itself(tmp_path: Path) -> None:
    """What differs between two of a kind is not Morag's fault, but that of the comparison."""
    outcome = run(0, 400, tmp_path, servers.original)
    assert not outcome.differences, str(outcome)
    assert outcome.known[JAVA_TEXT]
    assert not outcome.known[MERGED_RENAME]

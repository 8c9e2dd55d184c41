"""What the kernel and the wire promise, on every database that runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import morag
from tests.kernel.test_machine import CatalogMachine, bounded
from tests.wire.asking import asking
from tests.wire.transcripts import Scenario, replay, scenarios

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.stores

STEPS: Final = 20
EXAMPLES: Final = {
    "postgresql": 14,
    "mariadb": 14,
    "mongodb": 12,
    "cassandra": 4,
    "bigtable": 3,
    "dynamodb": 2,
}
"""By scheme, as many as each can do in about 20 s."""


def test_random_histories_are_as_the_model_says(new_repository: Callable[[], str]) -> None:
    class Machine(CatalogMachine):
        def __init__(self) -> None:
            super().__init__(new_repository())

    examples = EXAMPLES[new_repository().partition(":")[0]]
    # A failure is told as it was found: to shrink it would take minutes.
    unshrunk = settings(bounded(examples, STEPS), phases=[Phase.reuse, Phase.generate])
    run_state_machine_as_test(Machine, settings=unshrunk)


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_we_answer_like_the_original(new_repository: Callable[[], str], scenario: Scenario) -> None:
    with morag.open(new_repository()) as repository:
        replay(scenario, asking(repository))

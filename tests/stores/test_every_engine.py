"""The promises of the kernel and of the wire, on every database in `servers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import morag
from tests.kernel.catalog_machine import CatalogMachine, bounded
from tests.wire.api_calls import api_caller
from tests.wire.transcripts import Scenario, replay, scenarios

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.stores

STEPS: Final = 20


def test_random_histories_match_the_model(
    new_repository: Callable[[], str], histories: int
) -> None:
    class Machine(CatalogMachine):
        def __init__(self) -> None:
            super().__init__(new_repository())

    # A failure is reported unshrunk: shrinking would take minutes.
    unshrunk = settings(bounded(histories, STEPS), phases=[Phase.reuse, Phase.generate])
    run_state_machine_as_test(Machine, settings=unshrunk)


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_we_answer_like_nessie(new_repository: Callable[[], str], scenario: Scenario) -> None:
    with morag.open(new_repository()) as repository:
        replay(scenario, api_caller(repository))

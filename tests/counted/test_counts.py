"""A request costs what it did: no change makes a workload quietly a fifth dearer.

A workload that became cheaper fails, too, so that the stored counts stay close to the truth.
"""

from __future__ import annotations

import pytest

from tests.counted.counting import COUNTED, Counts, count_workloads
from tests.counted.figures import RENEW, differences, stored


@pytest.fixture(scope="module")
def counts() -> dict[str, Counts]:
    return count_workloads()


@pytest.mark.parametrize("workload", COUNTED)
def test_a_request_costs_what_it_did(workload: str, counts: dict[str, Counts]) -> None:
    figures = stored()
    if figures is None:
        pytest.skip(f"nobody counted with this version of Python yet: run `{RENEW}`")
    assert workload in figures, f"run `{RENEW}`"
    found = differences(workload, figures[workload], counts[workload])
    assert not found, f"if that is intended, run `{RENEW}`"


def test_a_fifth_more_or_less_is_noticed() -> None:
    before = {"instructions": 1000, "peak bytes": 100_000}
    same = {"instructions": 1200, "peak bytes": 131_000}
    assert not differences("config", before, same)
    dearer = {"instructions": 1201, "peak bytes": 133_000}
    assert differences("config", before, dearer) == [
        "config: 1201 instructions, which is more than 1000",
        "config: 133000 peak bytes, which is more than 100000",
    ]
    cheaper = {"instructions": 799, "peak bytes": 100_000}
    assert differences("config", before, cheaper) == [
        "config: 799 instructions, which is fewer than 1000"
    ]

"""The grammar of cut-off policies, and the choice of the policy for a reference."""

from __future__ import annotations

import pytest

from morag.model.configs import GarbageCollectorConfig, ReferenceCutoffPolicy
from morag.model.times import SECOND_NANOS, parse_instant
from morag.spark import CannotRun
from morag.spark.gc.plan import Cutoff, Policies

NOW = parse_instant("2024-03-10T12:00:00Z")


@pytest.mark.parametrize(
    ("policy", "cutoff"),
    [
        ("NONE", Cutoff()),
        ("none", Cutoff()),
        ("10", Cutoff(commits=10)),
        ("PT12H", Cutoff(since_nanos=NOW - 12 * 3600 * SECOND_NANOS)),
        ("p1d", Cutoff(since_nanos=NOW - 24 * 3600 * SECOND_NANOS)),
        ("2024-03-01T00:00:00Z", Cutoff(since_nanos=parse_instant("2024-03-01T00:00:00Z"))),
    ],
)
def test_a_policy_is_none_a_count_a_duration_or_a_time(policy: str, cutoff: Cutoff) -> None:
    assert Policies(policy).cutoff("main", NOW) == cutoff


@pytest.mark.parametrize(
    "policy", ["", "-1", "soon", "P", "P-1D", "PT-1H", "2024-03-01", "2999-01-01T00:00:00Z"]
)
def test_other_policies_are_refused(policy: str) -> None:
    with pytest.raises(CannotRun, match="Cut-off policy"):
        Policies(policy).check(NOW)


def test_the_first_pattern_that_matches_the_whole_name_counts() -> None:
    policies = Policies("1", (("etl/.*", "2"), (".*", "3")))
    assert policies.cutoff("etl/x", NOW) == Cutoff(commits=2)
    assert policies.cutoff("my-etl/x", NOW) == Cutoff(commits=3)


def test_requested_policies_precede_configured_ones() -> None:
    config = GarbageCollectorConfig(
        default_cutoff_policy="7",
        per_ref_cutoff_policies=(ReferenceCutoffPolicy("main", "8"),),
    )
    assert Policies.of(config, None, {}) == Policies("7", (("main", "8"),))
    requested = Policies.of(config, "1", {"main": "2"})
    assert requested.cutoff("main", NOW) == Cutoff(commits=2)
    assert requested.cutoff("other", NOW) == Cutoff(commits=1)
    assert Policies.of(config, "NONE", {}).cutoff("main", NOW) == Cutoff()
    assert Policies.of(config, None, {"other": "2"}).cutoff("main", NOW) == Cutoff(commits=8)
    assert Policies.of(None, None, {}) == Policies("NONE")


def test_a_bad_pattern_is_refused_even_if_no_reference_needs_it() -> None:
    with pytest.raises(CannotRun, match="not a regular expression"):
        Policies("NONE", (("ma(in", "1"),)).check(NOW)
    with pytest.raises(CannotRun, match="for references like 'main'"):
        Policies("NONE", (("main", "often"),)).check(NOW)

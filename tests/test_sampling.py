"""The choice of the day is repeatable, and a week covers everything."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from tests import sampling
from tests.sampling import DAYS, SAMPLES, VARIABLE


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("first", [date(2026, 11, 17), date(2027, 2, 25), date(2028, 12, 30)])
def test_seven_consecutive_days_run_everything(kind: str, first: date) -> None:
    sample = SAMPLES[kind]
    week = [sample.on(first + timedelta(days=n)) for n in range(DAYS)]
    assert {choice for day in week for choice in day} == set(sample.choices)
    assert all(day[: sample.always] == list(sample.choices[: sample.always]) for day in week)


@pytest.mark.parametrize("kind", SAMPLES)
def test_days_take_about_equal_shares(kind: str) -> None:
    sample = SAMPLES[kind]
    sizes = [len(sample.on(date(2026, 11, 17) + timedelta(days=n))) for n in range(DAYS)]
    assert max(sizes) - min(sizes) <= 1


def test_a_variable_repeats_the_choice_of_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "2026-11-17")
    assert sampling.chosen_day() == date(2026, 11, 17)
    assert sampling.hypothesis_seed() == 20261117
    assert "SAMPLE_DATE=2026-11-17" in sampling.report()[0]


def test_a_variable_can_ask_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "all")
    for kind, sample in SAMPLES.items():
        assert sample.on(sampling.chosen_day()) == list(sample.choices), kind

"""Durations, as Nessie reads and writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morag.errors import BadRequest
from morag.model.durations import duration_text, parse_duration

LIMIT_NANOS = (1 << 63) * 1_000_000_000


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("PT24H", "PT24H"),
        ("P1D", "PT24H"),
        ("P2DT3H", "PT51H"),
        ("PT86400S", "PT24H"),
        ("PT90M", "PT1H30M"),
        ("PT0S", "PT0S"),
        ("P0D", "PT0S"),
        ("-PT1H", "PT-1H"),
        ("PT-1H", "PT-1H"),
        ("-PT-1H", "PT1H"),
        ("+PT1H", "PT1H"),
        ("PT+1H", "PT1H"),
        ("pt1h", "PT1H"),
        ("PT1.5S", "PT1.5S"),
        ("PT1,5S", "PT1.5S"),
        ("PT1.S", "PT1S"),
        ("PT-1.5S", "PT-1.5S"),
        ("PT-0.5S", "PT-0.5S"),
        ("PT-0M-0.5S", "PT-0.5S"),
        ("-PT0.5S", "PT-0.5S"),
        ("PT0.000000001S", "PT0.000000001S"),
        ("PT5M0.100S", "PT5M0.1S"),
        ("PT1H0M0.5S", "PT1H0.5S"),
        ("PT1M-30S", "PT30S"),
        ("P-1DT25H", "PT1H"),
        ("PT-61S", "PT-1M-1S"),
        ("PT-3661.25S", "PT-1H-1M-1.25S"),
        ("PT-0.0S", "PT0S"),
        ("P106751991167300D", "PT2562047788015200H"),
        ("PT9223372036854775807S", "PT2562047788015215H30M7S"),
        ("PT-9223372036854775808S", "PT-2562047788015215H-30M-8S"),
    ],
)
def test_equal_durations_have_one_spelling(sent: str, shown: str) -> None:
    """Recorded from Nessie."""
    assert duration_text(parse_duration(sent)) == shown


@pytest.mark.parametrize(
    "text",
    [
        *("", "P", "PT", "P1DT", "xyz", "3600", "P1W", "P1Y", "P1M", "PT1H ", " PT1H", "PT1H\n"),
        *("PT.5S", "PT1H1", "PT1M1H", "P٣D", "PT9223372036854775808S", "PT9999999999999999H"),
        *("P106751991167301D", "PT2562047788015215H30M8S", "PT0.0000000001S"),
        f"PT{'9' * 10_000}S",
    ],
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="is not a duration"):
        parse_duration(text)


@given(st.integers(-LIMIT_NANOS, LIMIT_NANOS - 1))
def test_a_written_duration_is_read_as_equal(nanos: int) -> None:
    assert parse_duration(duration_text(nanos)) == nanos

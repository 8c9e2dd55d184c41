"""Times, as Nessie writes and reads them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from morag.errors import BadRequest
from morag.model.times import (
    MAX_NANOS,
    MIN_NANOS,
    instant_text,
    parse_header_time,
    parse_instant,
)

MOMENTS = st.integers(MIN_NANOS, MAX_NANOS)
APRIL = parse_instant("2005-04-07T20:13:13Z")


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (1_685_185_847_230_000_000, "2023-05-27T11:10:47.230Z"),
        (1_685_185_847_230_100_000, "2023-05-27T11:10:47.230100Z"),
        (1_685_185_847_230_100_100, "2023-05-27T11:10:47.230100100Z"),
        (1_685_185_847_000_001_000, "2023-05-27T11:10:47.000001Z"),
        (951_782_400_000_000_000, "2000-02-29T00:00:00Z"),
        (MIN_NANOS, "0001-01-01T00:00:00Z"),
        (MAX_NANOS, "9999-12-31T23:59:59.999999999Z"),
    ],
)
def test_a_time_has_one_text(nanos: int, text: str) -> None:
    assert instant_text(nanos) == text
    assert parse_instant(text) == nanos


@given(MOMENTS)
@example(MIN_NANOS)
@example(MAX_NANOS)
def test_a_written_time_is_read_as_equal(nanos: int) -> None:
    assert parse_instant(instant_text(nanos)) == nanos
    assert parse_header_time(instant_text(nanos)) == nanos


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2023-05-27T11:10:47.1Z", "2023-05-27T11:10:47.100Z"),
        ("2023-05-27T11:10:47.Z", "2023-05-27T11:10:47Z"),
        ("2023-05-27t11:10:47z", "2023-05-27T11:10:47Z"),
        ("2023-05-27T11:10:47.123456789+01:00", "2023-05-27T10:10:47.123456789Z"),
        ("2023-05-27T11:10:47-00:00", "2023-05-27T11:10:47Z"),
        ("2023-05-27T11:10:47+01:00:30", "2023-05-27T10:10:17Z"),
        ("2023-05-27T11:10:47+18:00", "2023-05-26T17:10:47Z"),
    ],
)
def test_fractions_and_offsets_are_understood(text: str, same: str) -> None:
    assert instant_text(parse_instant(text)) == same


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2023-05-27",
        "2023-05-27T11:10Z",
        "2023-05-27T11:10:47",
        "2023-05-27 11:10:47Z",
        "2023-05-27T11:10:47.1234567890Z",
        "2023-05-27T11:10:47+01",
        "2023-05-27T11:10:47+0100",
        "2023-05-27T11:10:47+18:01",
        "2023-05-27T11:10:47+01:60",
        "2023-02-29T11:10:47Z",
        "2023-13-01T11:10:47Z",
        "2023-05-27T25:00:00Z",
        "2023-05-27T11:60:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "2023-05-27T11:10:47Z\n",
        "\u0662023-05-27T11:10:47Z",  # A digit, but not an ASCII digit.
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="is not a time"):
        parse_instant(text)


@pytest.mark.parametrize(
    "text",
    [
        "2005-04-07T20:13:13Z",
        "2005-04-07T22:13:13+02:00",
        "2005-04-07T22:13:13+02",
        "2005-04-07T22:13:13+02:00[Europe/Paris]",
        "2005-04-07T20:13:13Z[UTC]",
        "Thu Apr 7 22:13:13 2005 +0200",
        "Thu Apr 07 22:13:13 2005 +02",
        "Apr 7 20:13:13 2005",
        "thu apr 7 20:13:13 2005 gmt",
        "Thu, 7 Apr 2005 22:13:13 +0200",
        "Thu, 07 Apr 2005 20:13:13 GMT",
        "7 Apr 2005 10:43:13 -0930",
        "7 Apr 2005 22:13:13. +020000",
    ],
)
def test_a_header_may_have_the_same_time_in_many_forms(text: str) -> None:
    assert parse_header_time(text) == APRIL


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2005-04-07T22:13+02:00", "2005-04-07T20:13:00Z"),
        ("Thu Apr 7 2:3:4 2005 GMT", "2005-04-07T02:03:04Z"),
        ("Thu Apr 7 22:13 2005 GMT", "2005-04-07T22:13:00Z"),
        ("7 Apr 2005 22:13", "2005-04-07T22:13:00Z"),
        ("7 Apr 2005 22:13:13.123456789 +020030", "2005-04-07T20:12:43.123456789Z"),
    ],
)
def test_a_time_in_a_header_may_leave_out_zero_parts(text: str, same: str) -> None:
    nanos = parse_header_time(text)
    assert nanos is not None
    assert instant_text(nanos) == same


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2005-04-07T22:13:13",
        "2005-04-07T22:13:13[Europe/Paris]",
        "Fri Apr 7 22:13:13 2005 +0200",  # That day was a Thursday.
        "Fri, 07 Apr 2005 22:13:13 GMT",
        "Thu Avr 7 22:13:13 2005 GMT",
        "Thu Apr 7 22:13:13 2005 Z",
        "Thu Apr 7 22:13:13 2005 +02:00",
        "Apr 32 22:13:13 2005 GMT",
        "Apr 7 22:13:60 2005 GMT",
        "7 Apr 2005 22:13:13 +1900",
        "7 Apr 2005 22:13:13 ",
    ],
)
def test_an_unreadable_header_is_not_an_error(text: str) -> None:
    assert parse_header_time(text) is None


@given(st.text())
def test_no_text_makes_the_reader_fail(text: str) -> None:
    parse_header_time(text)

"""Ref specs: every valid form, and the errors for invalid ones."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from morag.errors import BadRequest
from morag.model.refspecs import (
    HASH_AND_STEPS_RULE,
    REF_SPEC_RULE,
    RefSpec,
    Relative,
    RelativeKind,
    parse_ref_spec,
    parse_steps,
    split_hash_and_steps,
)
from morag.model.times import MAX_NANOS, MIN_NANOS, parse_instant

HASH = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
MAY = "2023-05-27T11:10:47.230Z"
MAY_NANOS = 1_685_185_847_230_000_000


def back(n: int) -> Relative:
    return Relative(RelativeKind.PREDECESSOR, n)


def parent(n: int) -> Relative:
    return Relative(RelativeKind.PARENT, n)


def at(nanos: int) -> Relative:
    return Relative(RelativeKind.TIMESTAMP, nanos)


def parse_hash_and_steps(text: str) -> RefSpec:
    hash, steps = split_hash_and_steps(text)
    return RefSpec(None, hash or None, parse_steps(steps))


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("main", RefSpec("main")),
        ("main@", RefSpec("main")),
        ("-", RefSpec("-")),
        ("-@", RefSpec("-")),
        ("dir/sub-1@", RefSpec("dir/sub-1")),
        (f"main@{HASH}", RefSpec("main", HASH)),
        (f"main@{HASH.upper()}", RefSpec("main", HASH)),
        ("main@cafebabe", RefSpec("main", "cafebabe")),
        (f"@{HASH}", RefSpec(None, HASH)),
        (f"@{HASH}~2", RefSpec(None, HASH, (back(2),))),
        ("main~3", RefSpec("main", None, (back(3),))),
        ("main@~1", RefSpec("main", None, (back(1),))),
        ("main~007", RefSpec("main", None, (back(7),))),
        ("main~2147483646", RefSpec("main", None, (back(2**31 - 2),))),
        ("main^2", RefSpec("main", None, (parent(2),))),
        ("main*1685185847230", RefSpec("main", None, (at(MAY_NANOS),))),
        ("main*0", RefSpec("main", None, (at(0),))),
        (f"main*{MAY}", RefSpec("main", None, (at(MAY_NANOS),))),
        (
            "main*2099-01-01T00:00:00Z",
            RefSpec("main", None, (at(parse_instant("2099-01-01T00:00:00Z")),)),
        ),
        (f"-@{HASH}~1~1", RefSpec("-", HASH, (back(1), back(1)))),
        (
            f"main@cafebabe~1^2*{MAY}~4",
            RefSpec("main", "cafebabe", (back(1), parent(2), at(MAY_NANOS), back(4))),
        ),
        ("~1", RefSpec(None, None, (back(1),))),
        ("deadbeef", RefSpec("deadbeef")),
    ],
)
def test_valid_ref_specs_are_parsed(text: str, spec: RefSpec) -> None:
    assert parse_ref_spec(text) == spec


@pytest.mark.parametrize(
    "text",
    [
        "a..b",
        "1abc",
        "a b",
        "main@abcdef",
        f"main@{HASH}00",
        "main@xyzxyzxyz",
        f"main@{HASH}@{HASH}",
        f"main~1@{HASH}",
        "main~",
        "main~-1",
        "main~x",
        "main~1x",
        "main~1~",
        "main~1\n",
        "main*",
        "main*nope",
        "main*2099-01-01",
        "main*2099-01-01T00:00:00+01:00",
        "main*2099-01-01T00:00:00.Z",
        "1" * 64,
    ],
)
def test_invalid_ref_specs_are_refused(text: str) -> None:
    with pytest.raises(BadRequest) as error:
        parse_ref_spec(text)
    assert str(error.value) == REF_SPEC_RULE


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("~0", "Illegal value 0 for spec type N_TH_PREDECESSOR (~)"),
        ("^0", "Illegal value 0 for spec type N_TH_PARENT (^)"),
        ("~1~00", "Illegal value 00 for spec type N_TH_PREDECESSOR (~)"),
        ("~2147483647", "Illegal value 2147483647 for spec type N_TH_PREDECESSOR (~)"),
        (f"^{'9' * 5000}", f"Illegal value {'9' * 5000} for spec type N_TH_PARENT (^)"),
        (f"~{MAY}", f"Illegal value {MAY} for spec type N_TH_PREDECESSOR (~)"),
        ("*9223372036854775808", "'9223372036854775808' are too many milliseconds"),
        ("*2023-02-29T00:00:00Z", "'*' relative commit spec argument '2023-02-29T00:00:00Z'"),
    ],
)
def test_impossible_steps_are_refused(step: str, message: str) -> None:
    with pytest.raises(BadRequest, match=f"^{re.escape(message)}"):
        parse_ref_spec(f"main{step}")
    with pytest.raises(BadRequest, match=f"^{re.escape(message)}"):
        parse_hash_and_steps(step)


@pytest.mark.parametrize("text", ["", "@"])
def test_an_empty_ref_spec_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"must be supplied$"):
        parse_ref_spec(text)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        (HASH, RefSpec(None, HASH)),
        (HASH.upper(), RefSpec(None, HASH)),
        ("cafebabe~1^2", RefSpec(None, "cafebabe", (back(1), parent(2)))),
        ("~1", RefSpec(None, None, (back(1),))),
        (f"*{MAY}", RefSpec(None, None, (at(MAY_NANOS),))),
    ],
)
def test_valid_hashes_with_steps_are_parsed(text: str, spec: RefSpec) -> None:
    assert parse_hash_and_steps(text) == spec


@pytest.mark.parametrize("text", ["", "zz", "abc", "main", "@", f"@{HASH}", "~", f"{HASH}~x"])
def test_invalid_hashes_with_steps_are_refused(text: str) -> None:
    with pytest.raises(BadRequest) as error:
        parse_hash_and_steps(text)
    assert str(error.value) == HASH_AND_STEPS_RULE


STEPS = st.one_of(
    st.builds(back, st.integers(1, 2**31 - 2)),
    st.builds(parent, st.integers(1, 2**31 - 2)),
    st.builds(at, st.integers(MIN_NANOS, MAX_NANOS)),
    st.builds(at, st.integers(0, 2**63 - 1).map(lambda millis: millis * 1_000_000)),
)
SPECS = st.builds(
    RefSpec,
    st.none() | st.from_regex(r"[A-Za-z](\.?[A-Za-z0-9/_-]*[A-Za-z0-9_-])?", fullmatch=True),
    st.none() | st.from_regex(r"[0-9a-f]{8,64}", fullmatch=True),
    st.lists(STEPS, max_size=4).map(tuple),
).filter(lambda spec: spec != RefSpec())


@given(SPECS)
@example(RefSpec("main", None, (at(MAX_NANOS + 1),)))
def test_a_spec_survives_writing_and_parsing(spec: RefSpec) -> None:
    assert parse_ref_spec(str(spec)) == spec


@given(st.text(alphabet="am1@~^*.:TZ-/0"))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        spec = parse_ref_spec(text)
    except BadRequest:
        return
    assert parse_ref_spec(str(spec)) == spec


def test_the_length_of_steps_is_limited() -> None:
    assert len(parse_hash_and_steps(5_000 * "~1").relatives) == 5_000
    for text in (10_000 * "~1", "main" + 10_000 * "~1"):
        with pytest.raises(BadRequest, match="relative part"):
            parse_ref_spec(text)
    with pytest.raises(BadRequest, match="relative part"):
        parse_hash_and_steps(10_000 * "~1")

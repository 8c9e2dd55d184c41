"""Which differences the comparison ignores, and which it must report. Needs no server."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.nessie.differential.comparison import Answer, Comparison
from tests.nessie.differential.symbols import Symbols

if TYPE_CHECKING:
    from tests.nessie.differential.symbols import Json

ONE, TWO, THREE, FOUR = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)
ID, OTHER_ID = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"

NAMED = "Cannot construct instance of `org.projectnessie.model.ImmutableTag`, problem: z"
MANY = "There are multiple conflicts that prevent committing the provided operations:"


def answer(body: Json, status: int = 200, kind: str = "application/json") -> Answer:
    return Answer(status, {"content-type": kind}, json.dumps(body).encode())


@pytest.fixture
def comparison() -> Comparison:
    return Comparison(Symbols())


def now(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def meta(hash: str, commit_time: str, author_time: str | None = None) -> Json:
    author_time = author_time or commit_time
    return {"hash": hash, "commitTime": commit_time, "authorTime": author_time}


@pytest.mark.parametrize(
    ("nessie", "morag"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"hash": ONE}, {"hash": TWO}),
        ({"message": f"at {ONE} into {TWO}."}, {"message": f"at {THREE} into {FOUR}."}),
        ({"id": ID, "again": ID}, {"id": OTHER_ID, "again": OTHER_ID}),
        ({"details": [{"k": 1}, {"k": 2}]}, {"details": [{"k": 2}, {"k": 1}]}),
        ({"token": "abc"}, {"token": "xyz"}),
        ({"time": now(0)}, {"time": now(7)}),
        (meta(ONE, now(0)), meta(TWO, now(1))),
        (
            {"errorCode": "X", "message": "get.a: not null, get.b: too long, really"},
            {"errorCode": "X", "message": "get.b: too long, really, get.a: not null"},
        ),
        (
            {"errorCode": "X", "message": "The following keys were not used: [a, b.c]"},
            {"errorCode": "X", "message": "The following keys were not used: [b.c, a]"},
        ),
        (
            {"errorCode": "X", "message": f"{MANY} namespace 'a' x, namespace 'b' y."},
            {"errorCode": "X", "message": f"{MANY} namespace 'b' y, namespace 'a' x."},
        ),
        (
            {"errorCode": "X", "message": "Cannot deserialize value"},
            {"errorCode": "X", "message": "not a number"},
        ),
        (
            {"errorCode": "X", "message": f"{NAMED} - but was: {ONE}~x\n at [Source: y]"},
            {"errorCode": "X", "message": f"{NAMED} - but was: {TWO}~x\n"},
        ),
    ],
)
def test_answers_that_count_as_the_same(comparison: Comparison, nessie: Json, morag: Json) -> None:
    assert comparison.differences(answer(nessie), answer(morag)) == []


@pytest.mark.parametrize(
    ("nessie", "morag"),
    [
        ({"a": None}, {}),
        ({"a": None}, {"a": []}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1}, {"a": True}),
        ({"a": "1"}, {"a": 1}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": [1]}, {"a": [1, 1]}),
        ({"a": ONE, "b": ONE}, {"a": TWO, "b": THREE}),
        ({"a": ONE, "b": TWO}, {"a": THREE, "b": THREE}),
        ({"a": ONE}, {"a": TWO[:63]}),
        ({"id": ID, "again": ID}, {"id": OTHER_ID, "again": ID}),
        ({"token": "abc"}, {"token": None}),
        ({"time": "2020-02-03T04:05:06Z"}, {"time": "2020-02-03T04:05:07Z"}),
        ({"time": now(0)}, {"time": "2020-02-03T04:05:06Z"}),
        (meta(ONE, now(0)), meta(TWO, (t := now(0)), t.replace("Z", "1Z"))),
        ({"errorCode": "X", "message": "a"}, {"errorCode": "X", "message": "b"}),
        (
            {"errorCode": "X", "message": f"{MANY} key 'a' x, key 'b' y."},
            {"errorCode": "X", "message": f"{MANY} key 'b' y, key 'a' x."},
        ),
        ({"errorCode": "X", "message": "java.util"}, {"errorCode": "X", "message": ""}),
        (
            {"errorCode": "X", "message": f"{NAMED} - but was: 1\n at [Source: y]"},
            {"errorCode": "X", "message": f"{NAMED} - but was: 2\n"},
        ),
        (
            {"errorCode": "X", "message": f"{NAMED} - but was: 1\n at [Source: y]"},
            {"errorCode": "X", "message": "not a name"},
        ),
        ({"errorCode": "X", "message": "java.util"}, {"errorCode": "Y", "message": "java.util"}),
    ],
)
def test_answers_that_count_as_different(comparison: Comparison, nessie: Json, morag: Json) -> None:
    assert comparison.differences(answer(nessie), answer(morag))


def test_status_and_media_type_count(comparison: Comparison) -> None:
    assert comparison.differences(answer({}), answer({}, 404))
    assert comparison.differences(answer({}), answer({}, kind="application/json;charset=UTF-8"))
    assert comparison.differences(answer({}), Answer(200, {}, b""))


def test_symbols_keep_their_value(comparison: Comparison) -> None:
    assert not comparison.differences(answer({"hash": ONE}), answer({"hash": TWO}))
    assert not comparison.differences(answer([ONE, THREE]), answer([TWO, FOUR]))
    assert comparison.differences(answer({"hash": ONE}), answer({"hash": FOUR}))
    assert comparison.differences(answer({"hash": "e" * 64}), answer({"hash": TWO}))


def test_a_commit_keeps_its_time(comparison: Comparison) -> None:
    nessie, morag = now(0), now(1)
    assert not comparison.differences(answer(meta(ONE, nessie)), answer(meta(TWO, morag)))
    assert comparison.differences(answer(meta(ONE, nessie)), answer(meta(TWO, now(5))))


def test_a_generated_time_belongs_to_the_same_commit_on_both_sides(comparison: Comparison) -> None:
    """A transplanted commit keeps the author's time, which the server generated."""
    nessie, morag = now(0), now(1)
    assert not comparison.differences(answer(meta(ONE, nessie)), answer(meta(TWO, morag)))
    one, other = meta(THREE, now(9), nessie), meta(FOUR, now(9), morag)
    assert not comparison.differences(answer(one), answer(other))
    wrong = meta("f" * 64, (late := now(20)), late)
    assert comparison.differences(answer(meta("e" * 64, now(19), nessie)), answer(wrong))


def test_a_symbol_has_a_value_on_either_side() -> None:
    symbols = Symbols()
    name = symbols.bind("H", ONE, TWO)
    assert symbols.real(f"x@{name}~1", 0) == f"x@{ONE}~1"
    assert symbols.real(f"x@{name}~1", 1) == f"x@{TWO}~1"
    assert symbols.symbolic({"a": [f"at {TWO}"]}, 1) == {"a": [f"at {name}"]}
    assert symbols.real(symbols.part(name, 8), 1) == TWO[:8]

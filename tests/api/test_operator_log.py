"""The log for operators: errors that clients meet, without repetition."""

from __future__ import annotations

import pytest

from morag.api.operator_log import Damage, OperatorLog
from morag.errors import (
    BadRequest,
    ReferenceConflict,
    RepositoryCorrupt,
    RetriesExhausted,
    StoreCannotWrite,
    StoreThrottled,
    StoreUnreachable,
)


class Log:
    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self.operator_log = OperatorLog(self.lines.append, lambda: self.now)


@pytest.fixture
def log() -> Log:
    return Log()


def test_mistakes_of_clients_are_not_logged(log: Log) -> None:
    for error in (BadRequest("x"), ReferenceConflict("x"), RetriesExhausted("x"), ValueError("x")):
        log.operator_log.note(error, "GET /")
    assert log.lines == []


def test_an_outage_is_logged_at_once_and_then_periodically(log: Log) -> None:
    for _ in range(100):
        log.operator_log.note(StoreUnreachable("it is down"), "POST /a")
        log.now += 0.25
    assert log.lines == [
        "POST /a failed: it is down",
        *["POST /a failed: it is down (and 39 more like this)"] * 2,
    ]


def test_damage_is_logged_once_for_each_thing_and_remembered(log: Log) -> None:
    assert log.operator_log.damage is None
    for _ in range(3):
        for id in (b"\x01", b"\x02"):
            log.operator_log.note(RepositoryCorrupt.object(id, "is damaged"), "GET /")
        log.now += 100.0
    first, second = (str(RepositoryCorrupt.object(id, "is damaged")) for id in (b"\x01", b"\x02"))
    assert log.lines == [f"GET / failed: {first}", f"GET / failed: {second}"]
    assert log.operator_log.damage == Damage(2, first)


def test_a_damaged_store_does_not_fill_the_log(log: Log) -> None:
    for number in range(3000):
        log.operator_log.note(RepositoryCorrupt(f"{number}"), "GET /")
    assert len(log.lines) == 1000
    assert log.operator_log.damage == Damage(1000, "0")


def test_each_kind_of_detail_is_sent(log: Log) -> None:
    for kind in (StoreUnreachable, StoreThrottled, StoreCannotWrite, RepositoryCorrupt):
        for _ in range(2):
            log.operator_log.note(kind("x"), "GET /")
    assert log.lines == ["GET / failed: x"] * 4

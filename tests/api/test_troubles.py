"""What operators hear of errors that each client is told."""

from __future__ import annotations

import pytest

from morag.api.troubles import Troubles
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
        self.troubles = Troubles(self.lines.append, lambda: self.now)


@pytest.fixture
def log() -> Log:
    return Log()


def test_what_a_client_did_wrong_is_not_told(log: Log) -> None:
    for error in (BadRequest("x"), ReferenceConflict("x"), RetriesExhausted("x"), ValueError("x")):
        log.troubles.note(error, "GET /")
    assert log.lines == []


def test_an_outage_is_told_at_once_and_then_now_and_then(log: Log) -> None:
    for _ in range(100):
        log.troubles.note(StoreUnreachable("it is down"), "POST /a")
        log.now += 0.25
    assert log.lines == [
        "POST /a failed: it is down",
        *["POST /a failed: it is down (and 39 more like this)"] * 2,
    ]


def test_each_kind_is_told(log: Log) -> None:
    for kind in (StoreUnreachable, StoreThrottled, StoreCannotWrite, RepositoryCorrupt):
        for _ in range(2):
            log.troubles.note(kind("x"), "GET /")
    assert log.lines == ["GET / failed: x"] * 4

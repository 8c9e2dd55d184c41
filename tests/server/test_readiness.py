"""Concurrent readiness requests share one check of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.server.readiness import UP, Readiness

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.api.http import Response


def test_the_store_is_checked_once_for_all_waiting_requests() -> None:
    checks: list[str] = []
    works: list[Callable[[], None]] = []
    answers: list[Response] = []

    def spawn(work: Callable[[], None], brief: bool = False, near: bool = False) -> None:
        works.append(work)

    ready = Readiness(lambda: checks.append("store"))
    for _ in range(20):
        ready.start(spawn, answers.append)
    assert len(works) == 1
    asking = [ready.is_checking]
    works.pop()()
    asking.append(ready.is_checking)
    assert asking == [True, False]
    assert checks == ["store"]
    assert answers == [UP] * 20

    ready.start(spawn, answers.append)
    works.pop()()
    assert checks == ["store"] * 2, "a later request gets its own check"
    assert len(answers) == 21

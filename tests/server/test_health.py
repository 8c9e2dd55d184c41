"""Readiness that many clients ask for at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.server.health import UP, Readiness

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.api.http import Response


def test_the_store_is_asked_once_for_all_that_wait() -> None:
    asked: list[str] = []
    works: list[Callable[[], None]] = []
    answers: list[Response] = []

    def spawn(work: Callable[[], None], brief: bool = False) -> None:
        works.append(work)

    ready = Readiness(lambda: asked.append("store"))
    for _ in range(20):
        ready.start(spawn, answers.append)
    assert len(works) == 1
    asking = [ready.is_asking]
    works.pop()()
    asking.append(ready.is_asking)
    assert asking == [True, False]
    assert asked == ["store"]
    assert answers == [UP] * 20

    ready.start(spawn, answers.append)
    works.pop()()
    assert asked == ["store"] * 2, "a later client gets an answer of its own"
    assert len(answers) == 21

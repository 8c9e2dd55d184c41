"""Answers that wait: each comes once, and none keeps a thread that others need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api.http import Response
from morag.api.later import InThread, InTurn, Turn

if TYPE_CHECKING:
    from collections.abc import Callable


class Threads:
    """Works that somebody would do; here the test does them, one by one."""

    def __init__(self) -> None:
        self.works: list[Callable[[], None]] = []

    def run_one(self) -> None:
        self.works.pop(0)()


def answering(status: int) -> InThread:
    return InThread(lambda: Response(status), lambda work: work())


def test_those_who_would_wait_for_each_other_have_one_thread_together() -> None:
    threads, turn, answers = Threads(), Turn(), list[int]()
    for status in (201, 202, 203):
        later = InTurn(turn, answering(status))
        later.start(threads.works.append, lambda response: answers.append(response.status))
    assert len(threads.works) == 1
    while threads.works:
        threads.run_one()
        assert len(threads.works) <= 1
    assert answers == [201, 202, 203]


def test_after_everybody_had_a_turn_the_next_one_starts_at_once() -> None:
    threads, turn, answers = Threads(), Turn(), list[int]()
    for status in (201, 202):
        later = InTurn(turn, answering(status))
        later.start(threads.works.append, lambda response: answers.append(response.status))
        threads.run_one()
    assert answers == [201, 202]


def test_an_answer_may_turn_out_to_wait_once_more() -> None:
    threads, answers = Threads(), list[int]()
    later = InThread(lambda: answering(204), lambda work: work())
    later.start(threads.works.append, lambda response: answers.append(response.status))
    threads.run_one()
    assert answers == []
    threads.run_one()
    assert answers == [204]

"""Answers that wait: each comes once, and none keeps a thread that others need."""

from __future__ import annotations

from morag.api.http import Client, Response
from morag.api.later import InThread
from morag.api.turns import Turns
from tests.spawning import Works


def answering(status: int, turns: Turns | None = None) -> InThread:
    turns = turns or Turns(1, most_waiting=10)
    return InThread(turns, Client(str(status)), lambda: Response(status), lambda work: work())


def test_those_who_would_wait_for_each_other_have_one_thread_together() -> None:
    works, turns, answers = Works(), Turns(1, most_waiting=10), list[int]()
    for status in (201, 202, 203):
        later = answering(status, turns)
        later.start(works.spawn, lambda response: answers.append(response.status))
    assert len(works.waiting) == 1
    while works.waiting:
        works.run_one()
        assert len(works.waiting) <= 1
    assert answers == [201, 202, 203]


def test_after_everybody_had_a_turn_the_next_one_starts_at_once() -> None:
    works, turns, answers = Works(), Turns(1, most_waiting=10), list[int]()
    for status in (201, 202):
        later = answering(status, turns)
        later.start(works.spawn, lambda response: answers.append(response.status))
        works.run_one()
    assert answers == [201, 202]


def test_an_answer_may_turn_out_to_wait_once_more() -> None:
    works, answers = Works(), list[int]()
    turns = Turns(1, most_waiting=10)
    later = InThread(turns, Client(), lambda: answering(204), lambda work: work())
    later.start(works.spawn, lambda response: answers.append(response.status))
    works.run_one()
    assert answers == []
    works.run_one()
    assert answers == [204]


def test_some_may_go_at_once_and_the_others_wait() -> None:
    works, turns, answers = Works(), Turns(2, most_waiting=10), list[int]()
    for status in (201, 202, 203, 204):
        later = answering(status, turns)
        later.start(works.spawn, lambda response: answers.append(response.status))
    assert len(works.waiting) == 2
    while works.waiting:
        works.run_one()
        assert len(works.waiting) <= 2
    assert answers == [201, 202, 203, 204]

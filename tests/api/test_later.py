"""`Later`: every answer comes once, and none keeps a thread that others need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

from morag.api.fair_queue import FairQueue
from morag.api.http import Client, Response
from morag.api.later import InLane, InThread, Later, run
from tests.spawners import ManualSpawner

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.api.later import Answer, Done
    from morag.versions.tickets import Request, Spawn, Ticket


class Scene:
    """Runs answers; `statuses` has the statuses that were given, in order."""

    def __init__(self) -> None:
        self.works = ManualSpawner()
        self.statuses: list[int] = []

    def run(self, later: Later) -> None:
        run(later, self.works.spawn, lambda response: self.statuses.append(response.status), failed)

    def run_all(self) -> None:
        while self.works.waiting:
            self.works.run_one()


def failed(error: Exception) -> Response:
    return Response(int(str(error)))


def answering(status: int, queue: FairQueue | None = None) -> InThread:
    return in_thread(lambda: Response(status), queue, Client(str(status)))


def in_thread(
    work: Callable[[], Answer], queue: FairQueue | None = None, client: Client | None = None
) -> InThread:
    return InThread(queue or FairQueue(1, most_waiting=10), client or Client(), work)


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_queue_uses_no_more_threads_than_it_may(at_once: int) -> None:
    scene, queue = Scene(), FairQueue(at_once, most_waiting=10)
    for status in (201, 202, 203, 204):
        scene.run(answering(status, queue))
    assert len(scene.works.waiting) == at_once
    while scene.works.waiting:
        scene.works.run_one()
        assert len(scene.works.waiting) <= at_once
    assert scene.statuses == [201, 202, 203, 204]


def test_a_request_on_an_idle_queue_starts_at_once() -> None:
    scene, queue = Scene(), FairQueue(1, most_waiting=10)
    for status in (201, 202):
        scene.run(answering(status, queue))
        scene.works.run_one()
    assert scene.statuses == [201, 202]


def test_an_answer_may_be_deferred_twice() -> None:
    scene = Scene()
    scene.run(in_thread(lambda: answering(204)))
    scene.works.run_one()
    assert scene.statuses == []
    scene.works.run_one()
    assert scene.statuses == [204]


def test_the_read_of_a_client_that_disconnected_ends_without_being_started() -> None:
    scene, queue, gone = Scene(), FairQueue(1, most_waiting=10), Client("gone")
    scene.run(answering(200, queue))
    scene.run(in_thread(fail, queue, gone))
    gone.gone = True
    scene.run_all()
    assert scene.statuses == [200, 499]


def fail(*_: object) -> NoReturn:
    raise ValueError("500")


class FailsAtStart:
    def start(self, spawn: Spawn, done: Done) -> None:
        fail()


class Finished:
    """A lane whose changes are done at once, with this result."""

    def __init__(self, result: Callable[[], Any]) -> None:
        self.result = result

    def join(self, request: Request, spawn: Spawn, finished: Callable[[Ticket], None]) -> None:
        finished(cast("Ticket", self))


def in_lane(result: Callable[[], Any], answer: Callable[[Any], Response]) -> InLane:
    return InLane(Finished(result).join, cast("Request", None), answer)


FAILURES: dict[str, Later] = {
    "at the start": FailsAtStart(),
    "in a thread": in_thread(fail),
    "at the start of the next answer": in_thread(FailsAtStart),
    "in the lane": in_lane(fail, lambda _: Response(200)),
    "while the response is made": in_lane(lambda: None, fail),
}


@pytest.mark.parametrize("where", FAILURES)
def test_an_exception_becomes_one_response(where: str) -> None:
    scene = Scene()
    scene.run(FAILURES[where])
    scene.run_all()
    assert scene.statuses == [500]


@pytest.mark.parametrize(("size", "threads"), [(10, 0), (100_000, 1)])
def test_a_large_response_does_not_hold_up_the_lane(size: int, threads: int) -> None:
    scene = Scene()
    scene.run(in_lane(lambda: bytes(size), lambda body: Response(200, body)))
    assert len(scene.works.waiting) == threads
    scene.run_all()
    assert scene.statuses == [200]

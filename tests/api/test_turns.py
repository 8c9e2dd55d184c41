"""Turns at the threads: fair between clients, bounded, and not for those who are gone."""

from __future__ import annotations

import pytest

from morag.api.http import Client
from morag.api.turns import TooBusy, Turn, Turns
from tests.spawning import Works


class Scene:
    """Turns whose works are done one by one by the test; `done` tells in which order."""

    def __init__(self, at_once: int, most_waiting: int = 100, reserved: int = 0) -> None:
        self.turns = Turns(at_once, most_waiting, reserved)
        self.works = Works()
        self.done: list[str] = []
        self.abandoned: list[str] = []

    def take(self, client: Client, name: str, *, is_change: bool = False) -> None:
        abandon = None if is_change else lambda: self.abandoned.append(name)
        work = lambda: self.done.append(name)  # noqa: E731 - Both are one line.
        self.turns.take(Turn(client, self.works.spawn, work, abandon))

    def run_all(self) -> None:
        while self.works.waiting:
            self.works.run_one()


def test_a_client_with_one_request_does_not_wait_for_all_of_another_ones() -> None:
    scene, greedy, modest = Scene(1), Client("greedy"), Client("modest")
    for number in range(5):
        scene.take(greedy, f"greedy {number}")
    scene.take(modest, "modest")
    scene.run_all()
    assert scene.done.index("modest") <= 2
    assert [name for name in scene.done if name != "modest"] == [f"greedy {n}" for n in range(5)]


def test_one_client_never_has_the_place_that_is_reserved() -> None:
    scene, greedy = Scene(3, reserved=1), Client("greedy")
    for number in range(10):
        scene.take(greedy, f"greedy {number}")
    assert len(scene.works.waiting) == 2
    scene.take(Client("modest"), "modest")
    assert len(scene.works.waiting) == 3
    scene.run_all()
    assert len(scene.done) == 11


def test_somebody_can_be_told_whether_anything_is_done() -> None:
    told: list[bool] = []
    scene = Scene(2)
    scene.turns = Turns(2, 100, busy=told.append)
    for _ in range(2):
        for client in (Client("one"), Client("other"), Client("third")):
            scene.take(client, "work")
        scene.run_all()
    assert told == [True, False, True, False]


def test_requests_of_clients_that_are_gone_are_dropped_without_being_started() -> None:
    scene, here, gone = Scene(1), Client("here"), Client("gone")
    scene.take(here, "running")
    for number in range(50):
        scene.take(gone, f"gone {number}")
    scene.take(here, "waiting")
    gone.gone = True
    scene.run_all()
    assert scene.done == ["running", "waiting"]
    assert scene.abandoned == [f"gone {number}" for number in range(50)]


def test_a_queue_full_of_clients_that_are_gone_is_no_reason_to_refuse() -> None:
    scene, here, gone = Scene(1, most_waiting=10), Client("same"), Client("same")
    scene.take(here, "running")
    for number in range(5):
        scene.take(gone, f"gone {number}")
    with pytest.raises(TooBusy):
        scene.take(here, "refused")
    gone.gone = True
    scene.take(here, "waiting")
    assert scene.abandoned == [f"gone {number}" for number in range(5)]
    scene.run_all()
    assert scene.done == ["running", "waiting"]


def test_an_accepted_change_is_made_although_its_client_is_gone() -> None:
    scene, gone = Scene(1), Client("gone")
    scene.take(Client("here"), "running")
    scene.take(gone, "change", is_change=True)
    gone.gone = True
    scene.run_all()
    assert scene.done == ["running", "change"]


def test_the_queue_is_bounded_and_one_client_has_half_of_it() -> None:
    scene, greedy = Scene(1, most_waiting=10), Client("greedy")
    scene.take(greedy, "running")
    for number in range(5):
        scene.take(greedy, f"greedy {number}")
    with pytest.raises(TooBusy, match="5 of them from your address"):
        scene.take(greedy, "one too many")
    for number in range(5):
        scene.take(Client(f"modest {number}"), f"modest {number}")
    with pytest.raises(TooBusy):
        scene.take(Client("late"), "late")
    scene.run_all()
    assert len(scene.done) == 11
    scene.take(Client("late"), "late")
    scene.run_all()
    assert scene.done[-1] == "late"


def test_a_long_work_lets_others_go_between_its_stretches() -> None:
    scene, long, short = Scene(1), Client("long"), Client("short")
    stretches = 3

    def stretch() -> None:
        nonlocal stretches
        scene.done.append("stretch")
        stretches -= 1
        if stretches:
            scene.turns.take_another(turn)

    turn = Turn(long, scene.works.spawn, stretch)
    scene.turns.take(turn)
    for number in range(2):
        scene.take(short, f"short {number}")
    scene.run_all()
    assert scene.done == ["stretch", "short 0", "stretch", "short 1", "stretch"]

"""The fair queue: bounded, fair between clients, and without jobs of clients that are gone."""

from __future__ import annotations

import pytest

from morag.api.fair_queue import FairQueue, Job, TooBusy
from morag.api.http import Client
from tests.spawners import ManualSpawner


class Scene:
    """A queue whose jobs the test runs one by one; `done` has them in that order."""

    def __init__(self, at_once: int, most_waiting: int = 100, reserved: int = 0) -> None:
        self.queue = FairQueue(at_once, most_waiting, reserved)
        self.works = ManualSpawner()
        self.done: list[str] = []
        self.abandoned: list[str] = []

    def add(self, client: Client, name: str, *, is_change: bool = False) -> None:
        abandon = None if is_change else lambda: self.abandoned.append(name)
        work = lambda: self.done.append(name)  # noqa: E731 - Both are one line.
        self.queue.add(Job(client, self.works.spawn, work, abandon))

    def run_all(self) -> None:
        while self.works.waiting:
            self.works.run_one()


def test_a_client_with_one_job_does_not_wait_for_all_jobs_of_another() -> None:
    scene, greedy, modest = Scene(1), Client("greedy"), Client("modest")
    for number in range(5):
        scene.add(greedy, f"greedy {number}")
    scene.add(modest, "modest")
    scene.run_all()
    assert scene.done.index("modest") <= 2
    assert [name for name in scene.done if name != "modest"] == [f"greedy {n}" for n in range(5)]


def test_one_client_never_gets_the_reserved_slot() -> None:
    scene, greedy = Scene(3, reserved=1), Client("greedy")
    for number in range(10):
        scene.add(greedy, f"greedy {number}")
    assert len(scene.works.waiting) == 2
    scene.add(Client("modest"), "modest")
    assert len(scene.works.waiting) == 3
    scene.run_all()
    assert len(scene.done) == 11


def test_a_callback_learns_when_the_queue_becomes_busy_and_idle() -> None:
    calls: list[bool] = []
    scene = Scene(2)
    scene.queue = FairQueue(2, 100, busy=calls.append)
    for _ in range(2):
        for client in (Client("one"), Client("other"), Client("third")):
            scene.add(client, "work")
        scene.run_all()
    assert calls == [True, False, True, False]


def test_jobs_of_disconnected_clients_are_dropped_without_being_started() -> None:
    scene, here, gone = Scene(1), Client("here"), Client("gone")
    scene.add(here, "running")
    for number in range(50):
        scene.add(gone, f"gone {number}")
    scene.add(here, "waiting")
    gone.gone = True
    scene.run_all()
    assert scene.done == ["running", "waiting"]
    assert scene.abandoned == [f"gone {number}" for number in range(50)]


def test_jobs_of_disconnected_clients_make_room_in_a_full_queue() -> None:
    scene, here, gone = Scene(1, most_waiting=10), Client("same"), Client("same")
    scene.add(here, "running")
    for number in range(5):
        scene.add(gone, f"gone {number}")
    with pytest.raises(TooBusy):
        scene.add(here, "refused")
    gone.gone = True
    scene.add(here, "waiting")
    assert scene.abandoned == [f"gone {number}" for number in range(5)]
    scene.run_all()
    assert scene.done == ["running", "waiting"]


def test_an_accepted_change_is_made_although_its_client_disconnected() -> None:
    scene, gone = Scene(1), Client("gone")
    scene.add(Client("here"), "running")
    scene.add(gone, "change", is_change=True)
    gone.gone = True
    scene.run_all()
    assert scene.done == ["running", "change"]


def test_the_queue_is_bounded_and_one_client_has_half_of_it() -> None:
    scene, greedy = Scene(1, most_waiting=10), Client("greedy")
    scene.add(greedy, "running")
    for number in range(5):
        scene.add(greedy, f"greedy {number}")
    with pytest.raises(TooBusy, match="5 of them from your address"):
        scene.add(greedy, "one too many")
    for number in range(5):
        scene.add(Client(f"modest {number}"), f"modest {number}")
    with pytest.raises(TooBusy):
        scene.add(Client("late"), "late")
    scene.run_all()
    assert len(scene.done) == 11
    scene.add(Client("late"), "late")
    scene.run_all()
    assert scene.done[-1] == "late"


def test_other_jobs_run_between_the_parts_of_a_long_job() -> None:
    scene, long, short = Scene(1), Client("long"), Client("short")
    parts = 3

    def part() -> None:
        nonlocal parts
        scene.done.append("part")
        parts -= 1
        if parts:
            scene.queue.add_next_part(job)

    job = Job(long, scene.works.spawn, part)
    scene.queue.add(job)
    for number in range(2):
        scene.add(short, f"short {number}")
    scene.run_all()
    assert scene.done == ["part", "short 0", "part", "short 1", "part"]

"""Spawners for tests: functions that run work which a server gives to a thread."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def in_thread(work: Callable[[], None], *, brief: bool = False, near: bool = False) -> None:
    Thread(target=work).start()


def at_once(work: Callable[[], None], *, brief: bool = False, near: bool = False) -> None:
    work()


class ManualSpawner:
    """Queues all work until the test runs it, one piece at a time."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.were_brief: list[bool] = []

    def spawn(self, work: Callable[[], None], *, brief: bool = False, near: bool = False) -> None:
        self.waiting.append(work)
        self.were_brief.append(brief)

    def run_one(self) -> None:
        self.waiting.pop(0)()

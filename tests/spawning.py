"""Ways to have work done that a server would give to a thread."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def in_thread(work: Callable[[], None], *, brief: bool = False) -> None:
    Thread(target=work).start()


def at_once(work: Callable[[], None], *, brief: bool = False) -> None:
    work()


class Works:
    """Works that somebody would do; here the test does them, one by one."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.were_brief: list[bool] = []

    def spawn(self, work: Callable[[], None], *, brief: bool = False) -> None:
        self.waiting.append(work)
        self.were_brief.append(brief)

    def run_one(self) -> None:
        self.waiting.pop(0)()

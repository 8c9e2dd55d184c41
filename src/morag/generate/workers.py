"""Threads that work off numbered steps, evenly in time if wanted, until they are stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOOK_SECONDS: Final = 0.2
_REAL: Final = World()


class Worker(Struct, frozen=True):
    """Calls `step` with each of its numbers. The numbers may be shared with other workers."""

    step: Callable[[int], None]
    numbers: Iterator[int]
    due: Callable[[int], float] = lambda _: 0.0
    """How many seconds after the start a step begins at the earliest."""


def shared_numbers(end: int | None) -> Iterator[int]:
    """0, 1, 2 ... for several workers: `next` of these iterators is atomic."""
    return count() if end is None else iter(range(end))


def work(
    workers: Sequence[Worker],
    stop: Event,
    *,
    seconds: float | None = None,
    look: Callable[[], None] = lambda: None,
    world: World = _REAL,
) -> None:
    """Run all workers in threads, and return when they have ended.

    They end early after `seconds`, when `stop` is set, and when one of them raises: its exception
    is raised here. `look` is called several times per second. A KeyboardInterrupt lets the steps
    that began end, and is then raised.
    """
    errors: list[BaseException] = []
    now = world.monotonic
    began = now()

    def run(worker: Worker) -> None:
        try:
            for number in worker.numbers:
                wait = began + worker.due(number) - now()
                if stop.wait(wait) if wait > 0 else stop.is_set():
                    return
                worker.step(number)
        except BaseException as error:  # noqa: BLE001 - It is raised in the caller's thread.
            errors.append(error)
            stop.set()

    threads = [Thread(target=run, args=(each,), daemon=True) for each in workers]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(_LOOK_SECONDS)
                look()
                if seconds is not None and now() - began >= seconds:
                    stop.set()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]

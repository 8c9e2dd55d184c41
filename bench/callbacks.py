"""Callbacks against coroutines: the cost of answering a request at once or in a thread.

`python -m bench.callbacks` prints microseconds of CPU time per request, the least of many slices.
A request does no work, so that only the overhead of the calls is measured.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import uvloop

from morag.api.fair_queue import FairQueue
from morag.api.http import Client, Response
from morag.api.later import InThread, run
from morag.server.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_SLICES: Final = 100
_REQUESTS: Final = 200
_RESPONSE: Final = Response(200)


def answer() -> Response:
    return _RESPONSE


async def call_at_once(count: int) -> None:
    """A protocol calls the API, and writes what it returns."""
    for _ in range(count):
        answer()


async def await_at_once(count: int) -> None:
    """A protocol starts a task for each request, which awaits the API."""

    async def answered() -> Response:
        return answer()

    async def request() -> None:
        await answered()

    for _ in range(count):
        await asyncio.get_running_loop().create_task(request())


def call_in_thread(threads: Threads) -> Callable[[int], Awaitable[None]]:
    """A `Later`, as the server runs it: through a fair queue to a thread and back to the loop."""
    queue, client = FairQueue(1, 512), Client("here")

    def spawn(work: Callable[[], None], *, brief: bool = False, near: bool = False) -> None:
        threads.spawn(work)

    def fail(error: Exception) -> Response:
        raise error

    async def request(loop: asyncio.AbstractEventLoop) -> None:
        answered = loop.create_future()  # Only because the next request must wait for this one.

        def done(response: Response) -> None:
            loop.call_soon_threadsafe(answered.set_result, response)

        run(InThread(queue, client, answer), spawn, done, fail)
        await answered

    async def requests(count: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(count):
            await request(loop)

    return requests


def await_in_thread(pool: ThreadPoolExecutor) -> Callable[[int], Awaitable[None]]:
    """A task for each request, with a semaphore for the queue and an executor for the threads."""

    async def requests(count: int) -> None:
        loop, queue = asyncio.get_running_loop(), asyncio.Semaphore(1)

        async def request() -> None:
            async with queue:
                await loop.run_in_executor(pool, answer)

        for _ in range(count):
            await loop.create_task(request())

    return requests


async def least_micros(ways: dict[str, Callable[[int], Awaitable[None]]]) -> dict[str, float]:
    """The ways take turns, so that other work on the machine slows all of them alike."""
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(_SLICES):
        for name, way in ways.items():
            began = time.process_time()
            await way(_REQUESTS)
            least[name] = min(least[name], (time.process_time() - began) / _REQUESTS)
    return {name: 1e6 * seconds for name, seconds in least.items()}


def main() -> None:
    threads, pool = Threads(2), ThreadPoolExecutor(2)
    ways = {
        "at once, a call": call_at_once,
        "at once, a task with a coroutine": await_at_once,
        "in a thread, a Later": call_in_thread(threads),
        "in a thread, a task with run_in_executor": await_in_thread(pool),
    }
    for name, micros in uvloop.run(least_micros(ways)).items():
        print(f"{name:42} {micros:6.2f} µs")
    threads.close(1)
    pool.shutdown()


if __name__ == "__main__":
    main()

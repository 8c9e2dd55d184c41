"""A queue for the threads: a few jobs run at once, and clients share them fairly.

Long jobs must not occupy the threads that drive lanes, and the jobs of one client must not keep all
other clients waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from threading import Lock

from msgspec import Struct

from morag.api.http import Client
from morag.errors import ServiceUnavailable
from morag.versions.tickets import Spawn


class TooBusy(ServiceUnavailable):
    """More requests wait for a thread than the queue holds."""


class Job(Struct, frozen=True):
    """Work that waits for a thread.

    If its client disconnects first, the queue drops the job and calls `abandon`. A change of the
    catalog has no `abandon`: it was accepted, so it is always carried out.
    """

    client: Client
    spawn: Spawn
    work: Callable[[], None]
    abandon: Callable[[], None] | None = None


class FairQueue:
    """Clients take turns, however many jobs each has queued; one client's jobs start in order.

    At most `at_once` jobs run. One client runs at most `at_once - reserved` of them (but at least
    one), and fills at most half of the `most_waiting` entries of the queue. `busy` is called with
    True when a job starts on an idle queue, and with False when the last running job ends.
    """

    def __init__(
        self,
        at_once: int,
        most_waiting: int,
        reserved: int = 0,
        busy: Callable[[bool], object] = lambda is_busy: None,
    ) -> None:
        self._busy = busy
        self._lock = Lock()
        self._free = at_once
        self._most_of_one_client = max(1, at_once - reserved)
        self._most_waiting = most_waiting
        self._waiting: dict[str, deque[Job]] = {}
        self._count = 0
        self._running: dict[str, int] = {}

    @property
    def has_waiting(self) -> bool:
        return self._count > 0

    def add(self, job: Job) -> None:
        """Start the job, now or later. Raises TooBusy if too many jobs wait already."""
        network, abandoned, refusal = job.client.network, [], None
        with self._lock:
            starts = self._begins(network)
            if not starts:
                if self._is_full(network):
                    abandoned = self._drop_abandoned()
                if self._is_full(network):
                    refusal = self._refusal(network)
                else:
                    self._append(job)
        _abandon(abandoned)
        if refusal is not None:
            raise refusal
        if starts:
            self._spawn(job)

    def add_next_part(self, job: Job) -> None:
        """Queue the next part of a job that was accepted before: it is never refused."""
        with self._lock:
            starts = self._begins(job.client.network)
            if not starts:
                self._append(job)
        if starts:
            self._spawn(job)

    def _run(self, job: Job) -> None:
        try:
            job.work()
        finally:
            network = job.client.network
            with self._lock:
                self._end(network)
                started, abandoned = self._start_waiting() if self._count else ((), ())
            for waiting in started:
                self._spawn(waiting)
            _abandon(abandoned)

    def _spawn(self, job: Job) -> None:
        job.spawn(lambda: self._run(job))

    def _start_waiting(self) -> tuple[list[Job], list[Job]]:
        """The jobs that start now, and the jobs whose clients have disconnected."""
        started: list[Job] = []
        abandoned: list[Job] = []
        for network in list(self._waiting):
            if not self._free:
                break
            queue = self._waiting.pop(network)
            while queue and _is_abandoned(queue[0]):
                abandoned.append(queue.popleft())
                self._count -= 1
            if queue and self._begins(network):
                started.append(queue.popleft())
                self._count -= 1
            if queue:
                self._waiting[network] = queue  # At the end: the other clients come first.
        return started, abandoned

    def _is_full(self, network: str) -> bool:
        of_client = len(self._waiting.get(network, ()))
        return self._count >= self._most_waiting or 2 * of_client >= self._most_waiting

    def _drop_abandoned(self) -> list[Job]:
        """Remove and return all jobs whose clients have disconnected."""
        abandoned: list[Job] = []
        for network, queue in list(self._waiting.items()):
            left: deque[Job] = deque()
            for job in queue:
                (abandoned if _is_abandoned(job) else left).append(job)
            if left:
                self._waiting[network] = left
            else:
                del self._waiting[network]
        self._count -= len(abandoned)
        return abandoned

    def _refusal(self, network: str) -> TooBusy:
        of_client = len(self._waiting.get(network, ()))
        return TooBusy(
            f"{self._count} requests wait for a thread, {of_client} of them from your address, and"
            " no more are accepted; try again later, with fewer at once"
        )

    def _append(self, job: Job) -> None:
        self._waiting.setdefault(job.client.network, deque()).append(job)
        self._count += 1

    def _begins(self, network: str) -> bool:
        """Take a slot for the client. False if it has to wait."""
        running = self._running.get(network, 0)
        if not self._free or running >= self._most_of_one_client:
            return False
        if not self._running:
            self._busy(True)
        self._free -= 1
        self._running[network] = running + 1
        return True

    def _end(self, network: str) -> None:
        self._free += 1
        self._running[network] -= 1
        if not self._running[network]:
            del self._running[network]
            if not self._running:
                self._busy(False)


def _is_abandoned(job: Job) -> bool:
    return job.abandon is not None and job.client.gone


def _abandon(jobs: Iterable[Job]) -> None:
    for job in jobs:
        assert job.abandon is not None, "only jobs with `abandon` are dropped"
        job.abandon()

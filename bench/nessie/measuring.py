"""Measures the workloads of a group on all sides, in short alternating slices."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from bench.nessie.records import Figure, Result, summed_up
from bench.nessie.servers import running
from morag.load.data_set import DataSet
from morag.load.target import Target
from morag.load.trial import Trial
from morag.load.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.nessie.plan import Item
    from bench.nessie.records import Measured, Record
    from bench.nessie.servers import Server, Side
    from bench.nessie.stores import NewStore
    from morag.load.driver import Outcome

_PREFIX: Final = "bench-"
_JVM_REQUESTS: Final = 10_000
_MOST_WARM_CPU_SECONDS: Final = 40.0
"""Of the server: on a busy machine a JVM takes longer to compile."""
_MOST_WARM_SECONDS: Final = 60.0
_CHEAPER: Final = 1.05
_STABLE_SLICES: Final = 2


class Pace(Struct, frozen=True):
    """How often, and for how long, each side is measured."""

    rounds: int = 5
    seconds: float = 1.0


def measure(
    store: str, new_store: NewStore, sides: Sequence[Side], items: Sequence[Item], pace: Pace
) -> Iterator[Record]:
    """Start fresh servers, and measure the items one after the other."""
    with ExitStack() as stack:
        prepared = []
        for side in sides:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server = stack.enter_context(running(side, new_store(folder), folder))
            prepared.append((server, DataSet(Target(server.uri), _PREFIX)))
        played: set[str] = set()
        for item in items:
            turns = [_Turns(server, data, item) for server, data in prepared]
            for each in turns:
                each.warm_up(pace.seconds, is_new=item.workload not in played)
            played.add(item.workload)
            for _ in range(pace.rounds):
                for each in turns:
                    each.take(pace.seconds)
            unit, results = WORKLOADS[item.workload].units, [each.result() for each in turns]
            yield Result(store, item.workload, item.part, item.clients, unit, results)
        resident = {server.side.name: float(server.resident_bytes()) for server, _ in prepared}
        yield Figure(store, "memory after load", "B", resident)


class _Turns:
    """The slices of one workload on one server."""

    def __init__(self, server: Server, data: DataSet, item: Item) -> None:
        self._server = server
        self._trial = Trial(data, WORKLOADS[item.workload], item.clients)
        self._outcomes: list[Outcome] = []

    def warm_up(self, seconds: float, is_new: bool) -> None:
        """Repeat slices until the server needs no less CPU time per unit than before.

        A JVM compiles what is called thousands of times, while it serves. So Nessie gets many
        requests of a workload that is new to it. Some may fail: a cold one often times out.
        """
        fewest = _JVM_REQUESTS if is_new and self._server.side.is_nessie else 0
        least, stable, requests, cpu_seconds, started = inf, 0, 0, 0.0, monotonic()
        while stable < _STABLE_SLICES or requests < fewest:
            outcome = self._slice(seconds)
            requests += len(outcome.latencies_seconds)
            cost = outcome.server_cpu_seconds / max(1, outcome.units)
            stable = 0 if cost < least / _CHEAPER else stable + 1
            least = min(least, cost)
            cpu_seconds += outcome.server_cpu_seconds
            if cpu_seconds > _MOST_WARM_CPU_SECONDS or monotonic() > started + _MOST_WARM_SECONDS:
                break

    def take(self, seconds: float) -> None:
        self._outcomes.append(self._slice(seconds))

    def result(self) -> Measured:
        self._trial.check_commits(self._outcomes[-1])
        return summed_up(self._server.side.name, self._outcomes)

    def _slice(self, seconds: float) -> Outcome:
        before = self._server.cpu_seconds()
        outcome = self._trial.drive(seconds)
        outcome.server_cpu_seconds = self._server.cpu_seconds() - before
        return outcome

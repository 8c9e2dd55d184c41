"""Measures the workloads of a group on all sides, in short alternating slices."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
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
_MOST_WARM_SLICES: Final = 15
_FASTER: Final = 1.05
_STABLE_SLICES: Final = 2


class Pace(Struct, frozen=True):
    """How often, and for how long, each side is measured."""

    rounds: int = 5
    seconds: float = 1.2


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
        for item in items:
            turns = [_Turns(server, data, item) for server, data in prepared]
            for each in turns:
                each.warm_up(pace.seconds)
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

    def warm_up(self, seconds: float) -> None:
        """Repeat slices until the server gets no faster: a JVM compiles for tens of seconds.

        Commits may fail here: a cold Nessie often times out after five seconds.
        """
        best, stable = 0.0, 0
        for _ in range(_MOST_WARM_SLICES):
            rate = self._trial.drive(seconds).rate
            stable = 0 if rate > best * _FASTER else stable + 1
            best = max(best, rate)
            if stable == _STABLE_SLICES:
                break

    def take(self, seconds: float) -> None:
        before = self._server.cpu_seconds()
        outcome = self._trial.drive(seconds)
        outcome.server_cpu_seconds = self._server.cpu_seconds() - before
        self._outcomes.append(outcome)

    def result(self) -> Measured:
        self._trial.check_commits(self._outcomes[-1])
        return summed_up(self._server.side.name, self._outcomes)

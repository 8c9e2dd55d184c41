"""Plays workloads on a server of a user: on references of its own, which it removes afterwards."""

from __future__ import annotations

from contextlib import contextmanager
from time import sleep
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from msgspec import Struct

from morag.client.errors import ServerUnreachable
from morag.errors import MoragError
from morag.load.data_set import DataSet
from morag.load.trial import Trial
from morag.load.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.load.data_set import Sizes
    from morag.load.target import Target

_WARM_SHARE: Final = 0.2
_LINGER_SECONDS: Final = 0.3
"""After an interrupt: the server may still create references that were requested before."""


class Played(Struct, frozen=True):
    """The result of one workload. It has no percentiles if nothing succeeded."""

    workload: str
    clients: int
    counted: str
    """What a unit is, in the plural."""
    seconds: float
    units: int
    units_per_second: float
    p50_millis: float | None
    p99_millis: float | None
    p999_millis: float | None
    failures: int
    shown_failures: list[str]
    """The first responses that were failures."""


@contextmanager
def own_references(target: Target, sizes: Sizes) -> Iterator[DataSet]:
    """A data set under a prefix that nobody else uses. It is removed at the end, in any case."""
    data = DataSet(target, f"morag-bench-{uuid4().hex[:12]}-", sizes)
    try:
        yield data
    except BaseException:
        sleep(_LINGER_SECONDS)
        raise
    finally:
        try:
            data.remove()
        except (MoragError, KeyboardInterrupt) as problem:
            raise ServerUnreachable(
                f"References that start with {data.prefix} may be left: {problem!r}"
            ) from problem


def play(data: DataSet, name: str, clients: int | None, seconds: float) -> Played:
    """Play a workload: first a little to warm the server up, then measured."""
    workload = WORKLOADS[name]
    trial = Trial(data, workload, clients or workload.clients)
    trial.drive(seconds * _WARM_SHARE)
    outcome = trial.drive(seconds)
    trial.check_commits(outcome)
    p50, p99, p999 = (
        1e3 * outcome.percentile_seconds(percent) if outcome.units else None
        for percent in (50, 99, 99.9)
    )
    return Played(
        workload=name,
        clients=clients or workload.clients,
        counted=workload.units,
        seconds=outcome.seconds,
        units=outcome.units,
        units_per_second=outcome.rate,
        p50_millis=p50,
        p99_millis=p99,
        p999_millis=p999,
        failures=outcome.failures,
        shown_failures=outcome.shown_failures,
    )

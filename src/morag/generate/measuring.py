"""Measures requests by kind: rates, percentiles of latencies, and failures with examples."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from math import ceil, exp, log
from threading import Lock
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import MoragError
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

_GROWTH: Final = log(1.01)
"""Latencies are counted in classes that are 1 % wide, so the memory does not grow with them."""
_SHOWN_FAILURES: Final = 3
_REAL: Final = World()


class Latencies:
    """The distribution of durations. Percentiles are correct to 1 %, the maximum is exact."""

    def __init__(self) -> None:
        self.count = 0
        self.max_seconds = 0.0
        self._classes: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        self.count += 1
        self.max_seconds = max(self.max_seconds, seconds)
        self._classes[ceil(log(max(seconds, 1e-9)) / _GROWTH)] += 1

    def percentile_seconds(self, percent: float) -> float | None:
        """None if nothing was measured."""
        rank, seen = ceil(self.count * percent / 100), 0
        for each in sorted(self._classes):
            seen += self._classes[each]
            if seen >= rank:
                return min(exp(each * _GROWTH), self.max_seconds)
        return None


class RequestFigures(Struct, frozen=True):
    """The figures of one kind of request. It has no percentiles if none succeeded."""

    name: str
    succeeded: int
    failed: int
    per_second: float
    p50_millis: float | None
    p95_millis: float | None
    p99_millis: float | None
    max_millis: float | None


class Figures(Struct, frozen=True):
    """The result of a run, complete or interrupted."""

    seconds: float
    commits: int
    commits_per_second: float
    puts: int
    """Of tables and views: those of their namespaces are not counted."""
    puts_per_second: float
    retries: int
    """Commits that were sent again because of a conflict."""
    failures: int
    shown_failures: list[str]
    """The first errors of each kind of request."""
    requests: list[RequestFigures]


class Measurements:
    """Collects the requests of all workers."""

    def __init__(self, world: World = _REAL) -> None:
        self._now = world.monotonic
        self._lock = Lock()
        self._latencies: dict[str, Latencies] = {}
        self._failures: dict[str, list[str]] = {}
        self._failed: Counter[str] = Counter()
        self._began = self._now()
        self._ended: float | None = None
        self.commits = self.puts = self.retries = 0

    def start(self) -> None:
        """Begin the measured time: everything before was preparation."""
        self._began = self._now()

    def stop(self) -> None:
        self._ended = self._now()

    @contextmanager
    def request(self, name: str) -> Iterator[None]:
        """Measure the block as one request. One that raises is not counted."""
        began = self._now()
        yield
        seconds = self._now() - began
        with self._lock:
            self._latencies.setdefault(name, Latencies()).add(seconds)

    def committed(self, puts: int) -> None:
        with self._lock:
            self.commits += 1
            self.puts += puts

    def retried(self) -> None:
        with self._lock:
            self.retries += 1

    def failed(self, name: str, error: BaseException) -> None:
        text = str(error) if isinstance(error, MoragError) else repr(error)
        with self._lock:
            self._failed[name] += 1
            examples = self._failures.setdefault(name, [])
            if len(examples) < _SHOWN_FAILURES:
                examples.append(f"{name}: {text}")

    def figures(self) -> Figures:
        with self._lock:
            seconds = (self._ended or self._now()) - self._began
            names = dict.fromkeys([*self._latencies, *self._failed])
            return Figures(
                seconds=seconds,
                commits=self.commits,
                commits_per_second=self.commits / seconds,
                puts=self.puts,
                puts_per_second=self.puts / seconds,
                retries=self.retries,
                failures=self._failed.total(),
                shown_failures=[text for texts in self._failures.values() for text in texts],
                requests=[self._of(name, seconds) for name in names],
            )

    def _of(self, name: str, seconds: float) -> RequestFigures:
        latencies = self._latencies.get(name, Latencies())
        percentiles = (latencies.percentile_seconds(percent) for percent in (50, 95, 99))
        p50, p95, p99 = (None if each is None else 1e3 * each for each in percentiles)
        return RequestFigures(
            name=name,
            succeeded=latencies.count,
            failed=self._failed[name],
            per_second=latencies.count / seconds,
            p50_millis=p50,
            p95_millis=p95,
            p99_millis=p99,
            max_millis=1e3 * latencies.max_seconds if latencies.count else None,
        )

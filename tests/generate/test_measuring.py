"""Measurements count requests, failures and commits, and know the distribution of latencies."""

from __future__ import annotations

from random import Random
from threading import Event
from typing import NoReturn

import pytest

from morag.errors import BadRequest
from morag.generate.measuring import Latencies, Measurements
from morag.generate.workers import Worker, shared_numbers, work


@pytest.mark.parametrize("percent", [50, 95, 99, 100])
def test_percentiles_are_correct_to_one_percent(percent: int) -> None:
    random = Random(1)
    seconds = [random.lognormvariate(-6, 1.5) for _ in range(5000)]
    latencies = Latencies()
    for each in seconds:
        latencies.add(each)
    exact = sorted(seconds)[len(seconds) * percent // 100 - 1]
    assert latencies.percentile_seconds(percent) == pytest.approx(exact, rel=0.011)
    assert latencies.max_seconds == max(seconds)


def test_nothing_measured_has_no_percentiles() -> None:
    assert Latencies().percentile_seconds(50) is None


def test_a_request_that_raises_is_not_a_success() -> None:
    measurements = Measurements()
    with pytest.raises(BadRequest), measurements.request("read"):
        raise BadRequest("no")
    measurements.failed("read", BadRequest("no"))
    (figures,) = measurements.figures().requests
    assert (figures.succeeded, figures.failed, figures.p50_millis) == (0, 1, None)
    assert measurements.figures().shown_failures == ["read: no"]


def test_only_the_first_failures_of_a_kind_are_shown() -> None:
    measurements = Measurements()
    for number in range(10):
        measurements.failed("commit", BadRequest(str(number)))
    measurements.failed("tag", ValueError("bug"))
    figures = measurements.figures()
    assert figures.failures == 11
    assert figures.shown_failures == [
        "commit: 0",
        "commit: 1",
        "commit: 2",
        "tag: ValueError('bug')",
    ]


def test_workers_share_numbers_and_do_each_once() -> None:
    done: list[int] = []
    worker = Worker(done.append, shared_numbers(500))
    work([worker] * 8, Event())
    assert sorted(done) == list(range(500))


def test_a_stopped_worker_takes_no_further_step() -> None:
    stop, done = Event(), []

    def step(number: int) -> None:
        done.append(number)
        if number == 9:
            stop.set()

    work([Worker(step, shared_numbers(None))], stop)
    assert done == list(range(10))


def test_an_exception_of_a_worker_ends_all_and_is_raised() -> None:
    def fail(number: int) -> NoReturn:
        raise BadRequest("no")

    endless = Worker(lambda _: None, shared_numbers(None))
    with pytest.raises(BadRequest, match="no"):
        work([endless, Worker(fail, shared_numbers(1))], Event())

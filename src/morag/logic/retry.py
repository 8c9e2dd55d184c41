"""Retries after a lost race or a failure of the store, within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from morag.errors import RetriesExhausted, StoreBusy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from morag.config import Settings


T = TypeVar("T")

LONGEST_RACE_PAUSE_MS: Final = 40
"""The longest pause after a lost race. A winner waits at least this long for the losers."""


class Attempt:
    """One attempt of several. Its caller sets `failure` if the store failed."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        self.failure: Exception | None = None


class Retries:
    """Attempts with a random pause between them, which doubles up to a limit.

    After the first lost race the caller retries at once, because the winner lets others go first.
    The duration of an attempt counts towards its pause, so a slow caller does not wait in addition.
    The final error is a lost race or the error of the store.
    """

    def __init__(
        self,
        settings: Settings,
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
        random: Random,
    ) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._sleep = sleep
        self._random = random

    def repeat(self, what: str, work: Callable[[], T]) -> T:
        """The result of `work`, which can be done again after a failure of the store."""
        for attempt in self.attempts(what):
            try:
                return work()
            except StoreBusy as busy:
                attempt.failure = busy
        raise AssertionError("the attempts end with an error")

    def attempts(self, what: str) -> Iterator[Attempt]:
        settings = self._settings
        started = self._monotonic()
        lower, upper = settings.retry_sleep_lower_ms, settings.retry_sleep_upper_ms
        made = 0
        while True:
            attempted = self._monotonic()
            attempt = Attempt()
            yield attempt
            now = self._monotonic()
            elapsed_ms = (now - started) * 1000
            made += 1
            exhausted = settings.commit_retries is not None and made > settings.commit_retries
            if exhausted or elapsed_ms >= settings.commit_timeout_ms:
                raise attempt.failure or RetriesExhausted(
                    f"The {what} operation could not be performed after {made - 1} retries "
                    f"within the configured commit timeout after {elapsed_ms:.0f} milliseconds"
                )
            if made == 1 and attempt.failure is None:
                continue
            pause_ms = self._random.uniform(lower, upper)
            if attempt.failure is None:
                pause_ms = min(pause_ms, LONGEST_RACE_PAUSE_MS)
            pause_ms -= (now - attempted) * 1000
            pause_ms = min(pause_ms, settings.commit_timeout_ms - elapsed_ms)
            if pause_ms > 0:
                self._sleep(pause_ms / 1000)
            lower = min(2 * lower, settings.retry_sleep_max_ms)
            upper = min(2 * upper, settings.retry_sleep_max_ms)

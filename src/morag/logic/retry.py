"""Trying again when another server was faster, within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.errors import RetriesExhausted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from morag.config import Settings


class Retries:
    """Attempts with a random pause between them, which doubles up to a limit.

    The first retry comes at once: who won against us lets us go first now. Time spent on an attempt
    counts towards its pause: who is slow by himself need not wait on top.
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

    def attempts(self, what: str) -> Iterator[int]:
        settings = self._settings
        started = self._monotonic()
        lower, upper = settings.retry_sleep_lower_ms, settings.retry_sleep_upper_ms
        attempt = 0
        while True:
            attempted = self._monotonic()
            yield attempt
            now = self._monotonic()
            elapsed_ms = (now - started) * 1000
            attempt += 1
            exhausted = settings.commit_retries is not None and attempt > settings.commit_retries
            if exhausted or elapsed_ms >= settings.commit_timeout_ms:
                raise RetriesExhausted(
                    f"The {what} operation could not be performed after {attempt - 1} retries "
                    f"within the configured commit timeout after {elapsed_ms:.0f} milliseconds"
                )
            if attempt == 1:
                continue
            pause_ms = self._random.uniform(lower, upper) - (now - attempted) * 1000
            pause_ms = min(pause_ms, settings.commit_timeout_ms - elapsed_ms)
            if pause_ms > 0:
                self._sleep(pause_ms / 1000)
            lower = min(2 * lower, settings.retry_sleep_max_ms)
            upper = min(2 * upper, settings.retry_sleep_max_ms)

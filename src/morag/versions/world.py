"""What the kernel needs from outside itself: time, chance and patience."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from random import Random
from uuid import uuid4

from msgspec import Struct, field


class World(Struct, frozen=True, kw_only=True):
    """The real one by default; tests bring their own."""

    clock_nanos: Callable[[], int] = time.time_ns
    monotonic: Callable[[], float] = time.monotonic
    cpu_seconds: Callable[[], float] = time.thread_time
    """Of the calling thread alone: a busy machine does not make work look longer."""
    sleep: Callable[[float], None] = time.sleep
    let_others_run: Callable[[], None] = lambda: time.sleep(0)
    random: Random = field(default_factory=Random)  # Each its own, or all would pause in step.
    random_bytes: Callable[[int], bytes] = os.urandom
    new_uuid: Callable[[], bytes] = lambda: uuid4().bytes

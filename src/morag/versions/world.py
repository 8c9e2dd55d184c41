"""Time, randomness and sleep, as the kernel gets them from outside."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from random import Random
from uuid import uuid4

from msgspec import Struct, field


class World(Struct, frozen=True, kw_only=True):
    """All nondeterminism of the kernel. By default the real one; tests replace it."""

    clock_nanos: Callable[[], int] = time.time_ns
    monotonic: Callable[[], float] = time.monotonic
    cpu_seconds: Callable[[], float] = time.thread_time
    """CPU time of the calling thread, which does not depend on the load of the machine."""
    sleep: Callable[[float], None] = time.sleep
    let_others_run: Callable[[], None] = lambda: time.sleep(0)
    # Not shared: otherwise all servers in a process would pause at the same times.
    random: Random = field(default_factory=Random)
    random_bytes: Callable[[int], bytes] = os.urandom
    new_uuid: Callable[[], bytes] = lambda: uuid4().bytes

"""Measures the peak memory of a process that lists and updates a million keys."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.report import Row

_CHILD = """
import re, sys
from random import Random
from pathlib import Path
import morag
from bench.workload import table
with morag.open(sys.argv[1], morag.Settings(cache_bytes=64 << 20)) as repo:
    count = sum(1 for _ in repo.contents.keys("main"))
    some = [e.key for n, e in enumerate(repo.contents.entries("main")) if n % 211 == 7]
    for key in some[:3000]:
        if len(key.elements) == 2:
            id = repo.contents.get("main", key).id
            repo.commit("main", [morag.Put(key, table(1, id))], "update")
    status = Path("/proc/self/status").read_text()
    print(count, re.search(r"VmHWM:\\s+(\\d+)", status)[1])
"""

_BUILD = """
import sys
from bench.workload import Workload
Workload(sys.argv[1], 1_000_000).repo.close()
"""


def peak_memory() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        url = f"rocksdb:{folder}/store"
        _run(_BUILD, f"{url}?sync=off")
        count, peak_kb = map(int, _run(_CHILD, url).split())
    assert count >= 1_000_000, "the child saw all keys"
    figure = f"{peak_kb / 1024:.0f} MB at its peak"
    yield (
        "RSS after listing and updating 1,000,000 keys, cache 64 MiB",
        figure,
        "≤ 250 MB",
        peak_kb <= 250 * 1024,
    )


def _run(program: str, url: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, url], check=True, capture_output=True, text=True
    )
    return done.stdout

"""Renews the stored counts of this version of Python: `python -m tests.counted`."""

from __future__ import annotations

from tests.counted.counting import count_workloads
from tests.counted.figures import renew

if __name__ == "__main__":
    renew(count_workloads())

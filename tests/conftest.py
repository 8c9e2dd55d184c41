"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes is a matter of what else the machine does: benchmarks measure time.
settings.register_profile("morag", deadline=None)
settings.load_profile("morag")

"""Memory that the C library keeps for itself."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2


def limit_arenas() -> None:
    """Have the threads share a few pools of free memory, instead of keeping one each.

    With glibc's own choice a server with many threads grows for as long as it is busy. To be called
    before there are threads; where the C library is another one, nothing happens.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, _ARENAS)

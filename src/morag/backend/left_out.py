"""Losses of embedded stores, which an operator may accept, and copies of the damaged files."""

from __future__ import annotations

import logging
from itertools import count
from typing import TYPE_CHECKING, Final

from morag.errors import RepositoryCorrupt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LEFT_OUT: Final = ".left-out"

_log = logging.getLogger(__name__)


def refuse_or_leave_out(loss: str, leave_out: Callable[[], str], *, accept_loss: bool) -> None:
    """Refuse to open a store that has lost something, unless its URL accepts that.

    `leave_out` makes the store usable without it, and returns the end of a sentence about what is
    kept.
    """
    if not accept_loss:
        raise RepositoryCorrupt(
            f"{loss}. Restore it from a backup; or add accept_loss=on to the store's URL, and it"
            " is opened without what comes after that"
        )
    _log.warning("%s. Opened without them: %s", loss, leave_out())


def name_for_copy(path: Path) -> Path:
    """One that is free: what an earlier loss has left is not overwritten."""
    numbers = (f".{number}" if number > 1 else "" for number in count(1))
    names = (path.with_name(f"{path.name}{number}{LEFT_OUT}") for number in numbers)
    return next(name for name in names if not name.exists())

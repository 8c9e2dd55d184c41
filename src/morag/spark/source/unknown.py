"""Options that nobody would look at, refused before somebody relies on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.spark.errors import CannotRun
from morag.spark.opening import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping


def refuse_unknown(what: str, options: Mapping[str, str], own: frozenset[str]) -> None:
    """`own` are the options of what is asked for, beside those that name the catalog."""
    known = own | OPTIONS
    for name in options:
        if name.lower() not in known:
            raise CannotRun(f"{what} has no option '{name}'; it has: {', '.join(sorted(known))}")

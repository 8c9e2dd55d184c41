"""Which tables a catalog has, with the options of each: known without Spark, also to commands."""

from __future__ import annotations

from typing import Final

OFFERED: Final[dict[str, frozenset[str]]] = {
    "references": frozenset(),
    "entries": frozenset({"ref"}),
    "log": frozenset({"ref", "operations"}),
    "diff": frozenset({"from", "to"}),
    "reflog": frozenset(),
    "objects": frozenset(),
}

"""Filters of listings, written in CEL.

A filter is compiled once and then called for each item. All errors, of either step, are
`BadRequest`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from morag.model.entry_columns import path_of_key
from morag.model.results import Diff
from morag.service.filters.program import Program
from morag.service.filters.variables import DIFFS, ENTRIES, LOG, REFERENCES
from morag.versions.screens import Screen

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.model.references import Reference, ReferenceMetadata
    from morag.model.results import Entry, LogEntry
    from morag.versions.content_batches import Stored

_CACHED: Final = 256
"""The number of compiled filters of each kind that are cached for further pages."""


@lru_cache(_CACHED)
def reference_filter(text: str) -> Callable[[Reference, ReferenceMetadata | None], bool]:
    """A filter with the variables `ref`, `refType`, `refMeta` and `commit`."""
    program = Program(text, REFERENCES)
    return lambda reference, metadata: program((reference, metadata))


@lru_cache(_CACHED)
def log_filter(text: str) -> Callable[[LogEntry], bool]:
    """A filter with the variables `commit` and `operations`."""
    return Program(text, LOG)


@lru_cache(_CACHED)
def entry_filter(text: str) -> KeyFilter:
    """A filter with the variable `entry`."""
    return KeyFilter(Program(text, ENTRIES))


@lru_cache(_CACHED)
def diff_filter(text: str) -> KeyFilter:
    """A filter with the variable `key`."""
    return KeyFilter(Program(text, DIFFS))


class KeyFilter:
    """A filter of items with keys. Its `screen` refuses most of them before they are built."""

    def __init__(self, program: Program) -> None:
        self.screen = Screen(program.keys, program.verdict)
        self._program = program

    def __call__(self, item: Entry | Diff | Stored) -> bool:
        type = "" if isinstance(item, Diff) else item.type
        return self._program((path_of_key(item.key), type))

    def after_screen(self, item: Entry | Stored) -> bool:
        """Whether an item passes that the screen did not refuse."""
        return self._program.is_settled or self(item)

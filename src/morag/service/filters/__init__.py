"""Filters of listings, written in CEL.

A filter is compiled once and then called for each item. All errors, of either step, are
`BadRequest`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from morag.service.filters.program import Program
from morag.service.filters.variables import DIFFS, ENTRIES, LOG, REFERENCES

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.model.references import Reference, ReferenceMetadata
    from morag.model.results import Diff, Entry, LogEntry
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
def entry_filter(text: str) -> Callable[[Entry | Stored], bool]:
    """A filter with the variable `entry`."""
    return Program(text, ENTRIES)


@lru_cache(_CACHED)
def diff_filter(text: str) -> Callable[[Diff | Stored], bool]:
    """A filter with the variable `key`."""
    return Program(text, DIFFS)

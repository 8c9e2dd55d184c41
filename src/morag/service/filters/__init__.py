"""Filters of listings, written in CEL.

A filter is compiled once and then called for each item. Whatever is wrong with it, at either time,
is a `BadRequest`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from morag.service.filters.program import Program
from morag.service.filters.variables import DIFFS, ENTRIES, LOG, REFERENCES

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.model.listed import Diff, Entry, LogEntry
    from morag.model.references import Reference, ReferenceMetadata
    from morag.versions.stretches import Stored

_REMEMBERED: Final = 256
"""Filters of each kind that stay compiled, so that the next page finds them."""


@lru_cache(_REMEMBERED)
def reference_filter(text: str) -> Callable[[Reference, ReferenceMetadata | None], bool]:
    """A filter with the variables `ref`, `refType`, `refMeta` and `commit`."""
    program = Program(text, REFERENCES)
    return lambda reference, metadata: program((reference, metadata))


@lru_cache(_REMEMBERED)
def log_filter(text: str) -> Callable[[LogEntry], bool]:
    """A filter with the variables `commit` and `operations`."""
    return Program(text, LOG)


@lru_cache(_REMEMBERED)
def entry_filter(text: str) -> Callable[[Entry | Stored], bool]:
    """A filter with the variable `entry`."""
    return Program(text, ENTRIES)


@lru_cache(_REMEMBERED)
def diff_filter(text: str) -> Callable[[Diff | Stored], bool]:
    """A filter with the variable `key`."""
    return Program(text, DIFFS)

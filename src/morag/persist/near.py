"""Reads that use refs which were looked up before, and that may be kept from asking the store."""

from __future__ import annotations

from contextlib import contextmanager
from threading import local
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from morag.format.records import Ref


class NotNear(Exception):
    """The work needs something that only the store has."""


class NearReads(local):
    """The limits of the work that the current thread does; without any by default."""

    refs: Mapping[str, Ref | None] | None = None
    asks_store: bool = True

    @contextmanager
    def limited(self, refs: Mapping[str, Ref | None], *, asks_store: bool) -> Iterator[None]:
        self.refs, self.asks_store = refs, asks_store
        try:
            yield
        finally:
            del self.refs, self.asks_store

    def check_store(self) -> None:
        """Call this before the store is asked."""
        if not self.asks_store:
            raise NotNear

    def find(self, names: Sequence[str]) -> dict[str, Ref] | None:
        """The refs, if all of them were looked up."""
        refs = self.refs
        if refs is None or any(name not in refs for name in names):
            return None
        return {name: ref for name in names if (ref := refs[name]) is not None}

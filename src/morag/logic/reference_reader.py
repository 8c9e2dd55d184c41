"""Reads named references as if interrupted changes had been completed, and writes nothing."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from morag.errors import ReferenceNotFound
from morag.format.ids import NO_ANCESTOR
from morag.format.index_entries import value_of
from morag.format.objects import RefObj
from morag.format.records import Ref
from morag.index.keys import key_text, text_key, text_range
from morag.index.layered import index_of
from morag.logic.history import head_commit
from morag.logic.internal_refs import REFS
from morag.model.names import split_full_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.index.layered import CommitIndex
    from morag.persist.persist import Persist

INTERNAL: Final = "int/"
_REFS_AT_ONCE: Final = 100


class ReferenceReader:
    """References by their full names, such as `refs/heads/main`."""

    def __init__(self, persist: Persist) -> None:
        self._persist = persist

    def find(self, name: str) -> Ref | None:
        return self._as_completed(name, self._persist.ref(name))

    def find_all(self, names: list[str]) -> list[Ref | None]:
        """The references, as if interrupted changes had been completed."""
        stored = self._persist.refs(names)
        return [self._as_completed(name, stored.get(name)) for name in names]

    def find_first(self, names: list[str]) -> Ref | None:
        """The first of the names that exists.

        A shared store may be on another machine, so all names are read at once there. The store of
        one process is local, and reading a name that is not needed would only take time.
        """
        stored = self._persist.refs(names) if self._persist.is_shared else None
        for name in names:
            found = self._persist.ref(name) if stored is None else stored.get(name)
            ref = self._as_completed(name, found)
            if ref is not None:
                return ref
        return None

    def get(self, name: str) -> Ref:
        ref = self.find(name)
        if ref is None:
            raise ReferenceNotFound.named(short_name(name))
        return ref

    def list(
        self, prefix: str = "", start: str | None = None, end: str | None = None
    ) -> Iterator[Ref]:
        """References in the order of their names, from `start` on, up to `end` inclusive."""
        entries = self.names(self.names_ref()).items(text_range(prefix, start, end))
        while names := [key_text(key) for key, _ in islice(entries, _REFS_AT_ONCE)]:
            yield from filter(None, self.find_all(names))

    def created(self, name: str) -> RefObj | None:
        """The committed record of this name, or None."""
        return self.created_at(self.names_ref(), name)

    def created_at(self, names: Ref | None, name: str) -> RefObj | None:
        op = self.names(names).get(text_key(name))
        return None if op is None else self._persist.fetch(RefObj, value_of(op))

    def names_ref(self) -> Ref | None:
        return self._persist.ref(REFS)

    def names(self, ref: Ref | None) -> CommitIndex:
        """All names, as they are committed at this state of `int/refs`."""
        head = NO_ANCESTOR if ref is None else ref.pointer
        return index_of(self._persist, head_commit(self._persist, head))

    def _as_completed(self, name: str, stored: Ref | None) -> Ref | None:
        """The reference after a change that may have been interrupted; None if it does not exist.

        Internal references are never shown.
        """
        if name.startswith(INTERNAL):
            return None
        if stored is None:  # Its name may be committed, and its ref not inserted yet.
            created = self.created(name)
            return None if created is None else ref_of(created)
        # A ref that is marked as deleted will be removed.
        return None if stored.deleted else stored


def ref_of(created: RefObj) -> Ref:
    """The reference right after its creation."""
    return Ref(
        created.name,
        created.initial_pointer,
        False,
        created.created_micros,
        created.extended_info,
    )


def short_name(name: str) -> str:
    """The name that users see."""
    split = split_full_name(name)
    return name if split is None else split[1]

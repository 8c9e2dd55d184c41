"""The ids at which everything begins that a repository needs: heads of refs, and recent ones."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.format.ids import NO_ANCESTOR
from morag.format.records import ObjId
from morag.index.keys import key_text
from morag.logic.internal_refs import REFS, REPOSITORY, missing
from morag.logic.reference_reader import ReferenceReader, ref_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from morag.format.records import Ref
    from morag.persist.persist import Persist

_REFS_AT_ONCE: Final = 500
_MOST_ROUNDS: Final = 5


class Root(Struct, frozen=True, gc=False):
    """Where a ref points. Only the current head is `needed`: others may be gone."""

    id: ObjId
    needed: bool = True


def live_roots(persist: Persist) -> Iterator[Root]:
    """The roots of all refs, internal ones included, and of refs being created or deleted.

    If names were added or removed meanwhile, all refs are read again, so that a commit is found
    that moved from one reference to another. A catalog whose names change all the time is read a
    few times; callers that need more look again later.
    """
    reader = ReferenceReader(persist)
    for _ in range(_MOST_ROUNDS):
        names = reader.names_ref()
        if names is None:
            raise missing(REFS)
        internal = persist.refs([REFS, REPOSITORY])
        yield from _roots(internal.values())
        entries = reader.names(names).items()
        while some := [key_text(key) for key, _ in islice(entries, _REFS_AT_ONCE)]:
            stored = persist.refs(some)
            yield from _roots(stored.values())
            for name in some:
                if name not in stored:  # It is being created, or was dropped in this moment.
                    created = reader.created_at(names, name)
                    if created is not None:
                        yield Root(ref_of(created).pointer, needed=False)
        now = reader.names_ref()
        if now is not None and now.pointer == names.pointer:
            return


def _roots(refs: Iterable[Ref]) -> Iterator[Root]:
    for ref in refs:
        if ref.pointer != NO_ANCESTOR:
            yield Root(ref.pointer)
        if ref.extended_info is not None:
            yield Root(ref.extended_info, needed=False)
        for previous in ref.previous:
            if previous.pointer != NO_ANCESTOR:
                yield Root(previous.pointer, needed=False)

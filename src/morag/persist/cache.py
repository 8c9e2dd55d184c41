"""One bounded cache for everything immutable, counted in bytes."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Final

from morag.persist.objects import Commit, Index, IndexSegments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from morag.backend.base import ObjId
    from morag.persist.objects import Obj

_OVERHEAD_BYTES: Final = 600  # What an object costs beside its data: structs, ids, the entry here.
_DECODED: Final = 2.5  # What a decoded index takes, per byte that it was decoded from.


class ObjectCache:
    """Least recently used objects go first when the bytes run out.

    Objects are immutable and found by their content, so an entry can be missing but never stale:
    several servers need no word between their caches.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._objs: OrderedDict[ObjId, tuple[Obj, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, id: ObjId) -> Obj | None:
        entry = self._objs.get(id)
        if entry is None:
            return None
        try:  # Not `suppress`, which would take longer than all the rest.
            self._objs.move_to_end(id)
        except KeyError:
            return entry[0]  # Evicted a moment ago; what we hold is as good as ever.
        return entry[0]

    def put(self, obj: Obj, stored_bytes: int) -> None:
        weight = weight_bytes(obj, stored_bytes)
        if weight > self.max_bytes:
            return
        with self._lock:
            old = self._objs.pop(obj.id, None)
            if old is not None:
                self.bytes -= old[1]
            self._objs[obj.id] = (obj, weight)
            self.bytes += weight
            while self.bytes > self.max_bytes:
                _, (_, freed) = self._objs.popitem(last=False)
                self.bytes -= freed

    def demote(self, ids: Iterable[ObjId]) -> None:
        """These will hardly be asked for again: they go first when room is needed."""
        for id in ids:
            with suppress(KeyError):
                self._objs.move_to_end(id, last=False)

    def __len__(self) -> int:
        return len(self._objs)


def weight_bytes(obj: Obj, stored_bytes: int) -> int:
    """What the object takes in memory, with the decoded form that it will carry before long.

    Beside its fields, which are about its stored bytes, a commit has the lists of its incremental
    index; the entries in them are shared with its neighbours. An index is nothing but its decoded
    form. A stripe list keeps both, and the pieces it will be encoded from next time.
    """
    match obj:
        case Commit():
            return _OVERHEAD_BYTES + stored_bytes + len(obj.incremental)
        case Index():
            return _OVERHEAD_BYTES + int(_DECODED * stored_bytes)
        case IndexSegments():
            return _OVERHEAD_BYTES + int(2 * _DECODED * stored_bytes)
        case _:
            return _OVERHEAD_BYTES + stored_bytes

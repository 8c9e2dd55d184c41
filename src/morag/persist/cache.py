"""The cache of objects and of their forms, with a limit on its memory."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from morag.format.objects import Commit, Index, IndexSegments

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from morag.format.objects import Obj
    from morag.format.records import ObjId

_OVERHEAD_BYTES: Final = 600  # The overhead of an object: structs, ids, the cache entry.
_DECODED: Final = 2.5  # The memory of a decoded index, per encoded byte.


class ObjectCache:
    """Evicts the least recently used objects when the memory limit is reached.

    Objects are immutable and found by their content, so an entry can be missing but never stale:
    several servers need not synchronize their caches.

    A form is something that was computed from an object, such as its JSON. It has a name, is
    evicted together with its object, and counts as part of it.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._objs: OrderedDict[ObjId, tuple[Obj, int]] = OrderedDict()
        self._forms: dict[str, dict[ObjId, Any]] = {}
        self._lock = Lock()

    def get(self, id: ObjId) -> Obj | None:
        entry = self._objs.get(id)
        if entry is None:
            return None
        try:  # Not `suppress`, which would take longer than the rest of this method.
            self._objs.move_to_end(id)
        except KeyError:
            return entry[0]  # Evicted a moment ago; the object itself is still valid.
        return entry[0]

    def put(self, obj: Obj, stored_bytes: int) -> None:
        weight = weight_bytes(obj, stored_bytes)
        if weight > self.max_bytes:
            return
        with self._lock:
            old = self._objs.pop(obj.id, None)
            if old is not None:
                self._free(obj.id, old[1])
            self._objs[obj.id] = (obj, weight)
            self.bytes += weight
            self._evict()

    def form(self, name: str, id: ObjId) -> Any:
        """The form of an object, None if it is not cached."""
        forms = self._forms.get(name)
        return None if forms is None else forms.get(id)

    def forms(self, name: str, ids: Sequence[ObjId]) -> list[Any] | None:
        """The forms of several objects, if all of them are cached. The objects count as used."""
        forms, use = self._forms.get(name, {}), self._objs.move_to_end
        try:
            found = [forms[id] for id in ids]
            for id in ids:
                use(id)
        except KeyError:
            return None  # Or evicted a moment ago.
        return found

    def put_form(self, name: str, id: ObjId, form: Any, form_bytes: int) -> None:
        """Keep a form as long as its object, if that is cached."""
        with self._lock:
            entry = self._objs.get(id)
            forms = self._forms.setdefault(name, {})
            if entry is None or id in forms:
                return
            obj, weight = entry
            if weight + form_bytes > self.max_bytes:
                return
            forms[id] = form
            self._objs[id] = (obj, weight + form_bytes)
            self.bytes += form_bytes
            self._evict()

    def _evict(self) -> None:
        while self.bytes > self.max_bytes:
            id, (_, weight) = self._objs.popitem(last=False)
            self._free(id, weight)

    def _free(self, id: ObjId, weight: int) -> None:
        self.bytes -= weight
        for forms in self._forms.values():
            forms.pop(id, None)

    def demote(self, ids: Iterable[ObjId]) -> None:
        """Mark objects that will rarely be needed again: they are evicted first."""
        for id in ids:
            with suppress(KeyError):
                self._objs.move_to_end(id, last=False)

    def __len__(self) -> int:
        return len(self._objs)


def weight_bytes(obj: Obj, stored_bytes: int) -> int:
    """The memory of an object, including the decoded form that it will soon hold.

    In addition to its fields, which are about as large as its stored bytes, a commit has the lists
    of its incremental index; their entries are shared with neighbouring commits. An index has only
    its decoded form. A stripe list has both, and the pieces from which it is encoded next time.
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

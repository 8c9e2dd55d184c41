"""Objects that are about to be published, and can already be read."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from morag.format.objects import Obj
    from morag.format.records import ObjId


class Staging:
    """Counts how often each object is staged: two branches may be about to publish the same one."""

    def __init__(self) -> None:
        self._staged: dict[ObjId, Obj] = {}
        self._counts: dict[ObjId, int] = {}
        self._lock = Lock()

    def get(self, id: ObjId) -> Obj | None:
        return self._staged.get(id)

    def add(self, objs: Iterable[Obj]) -> None:
        with self._lock:
            for obj in objs:
                self._staged[obj.id] = obj
                self._counts[obj.id] = self._counts.get(obj.id, 0) + 1

    def remove(self, objs: Iterable[Obj]) -> None:
        """Undo one `add`."""
        with self._lock:
            for obj in objs:
                self._counts[obj.id] -= 1
                if self._counts[obj.id] == 0:
                    del self._staged[obj.id], self._counts[obj.id]

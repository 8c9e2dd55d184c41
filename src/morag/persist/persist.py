"""Persist: the one door between typed objects and whichever backend is below."""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from morag.backend.base import (
    UNIQUE_KIND,
    AppliesAtOnce,
    KeepsRefLog,
    LimitsNames,
    PreviousPointer,
    Private,
    RefSwap,
)
from morag.backend.protos import damaged_ref
from morag.backend.read_only import ReadOnlyBackend
from morag.errors import BadRequest, RepositoryCorrupt
from morag.persist.cache import ObjectCache
from morag.persist.codec import decode, encode
from morag.persist.ids import ID_BYTES
from morag.persist.objects import Commit, Index, IndexSegments
from morag.persist.proof import is_proven

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from morag.backend.base import Backend, LogRow, ObjId, Ref, Row
    from morag.config import Settings
    from morag.persist.objects import Obj

T = TypeVar("T", bound="Obj")

_RECENT_COMMITS: Final = 500
_FRESH_CACHE_BYTES: Final = 32 * 1024 * 1024
_KEPT: Final = frozenset({Commit, Index, IndexSegments})


class ObjectMissing(RepositoryCorrupt):
    """Objects that something points to are not stored."""

    def __init__(self, ids: Sequence[ObjId]) -> None:
        listed = ", ".join(f"'{id.hex()}'" for id in ids)
        objects = f"Object{'s' if len(ids) > 1 else ''} {listed}"
        super().__init__(str(RepositoryCorrupt.found(objects, "not found")))
        self.ids = tuple(ids)


class Persist:
    """Objects and refs of one repository.

    Every object that is loaded is checked against its id, once: what is cached is sound.
    `refutes` decides on commits whose id does not follow from their row alone (`proof.py`), by what
    else is stored; without it they are taken as they are.
    """

    def __init__(
        self,
        backend: Backend,
        cache: ObjectCache,
        settings: Settings,
        clock_nanos: Callable[[], int],
        refutes: Callable[[Persist, Commit], bool] | None = None,
    ) -> None:
        self._backend = backend
        self._repo = settings.repository_id
        self._cache = cache
        self.settings = settings
        self.clock_nanos = clock_nanos
        self._refutes = refutes
        self._recent: deque[ObjId] = deque()
        self._staged: dict[ObjId, Obj] = {}
        self._stagings: dict[ObjId, int] = {}
        self._staging = Lock()
        self._apply = backend.apply if isinstance(backend, AppliesAtOnce) else None
        self._log = backend if isinstance(backend, KeepsRefLog) else None
        self.read_only = isinstance(backend, ReadOnlyBackend)
        self.is_shared = not isinstance(backend, Private)

    def now_micros(self) -> int:
        return self.clock_nanos() // 1000

    # Objects

    def fetch(self, kind: type[T], id: ObjId) -> T:
        obj = self._cache.get(id)
        if obj is None:
            return self.fetch_all(kind, [id])[0]
        return _typed(kind, id, obj)

    def fetch_all(self, kind: type[T], ids: Sequence[ObjId]) -> list[T]:
        """The objects in the order asked for, read in one go as far as they are not cached."""
        cached = [obj for id in ids if (obj := self._cache.get(id)) is not None]
        if len(cached) < len(ids):
            found = self._load(ids)
            cached = [found[id] for id in ids]
        return [_typed(kind, id, obj) for id, obj in zip(ids, cached, strict=True)]

    def fetch_any(self, id: ObjId) -> Obj:
        """An object whose kind depends on who wrote it."""
        return self._cache.get(id) or self._load([id])[id]

    def _load(self, ids: Sequence[ObjId]) -> dict[ObjId, Obj]:
        found: dict[ObjId, Obj] = {}
        missing: list[ObjId] = []
        for id in dict.fromkeys(ids):
            obj = self._cache.get(id) or self._staged.get(id)
            if obj is None:
                missing.append(id)
            else:
                found[id] = obj
        if missing:
            rows = self._backend.read_rows(self._repo, missing)
            lost = [id for id in missing if id not in rows]
            if lost:
                raise ObjectMissing(lost)
            for id, row in rows.items():
                obj = found[id] = decode(row)
                if self._refutes is not None and type(obj) is Commit and not is_proven(obj):
                    self._judge(obj, self._refutes)
                self._cache.put(obj, len(row.data))
        return found

    def _judge(self, commit: Commit, refutes: Callable[[Persist, Commit], bool]) -> None:
        if refutes(self._trusting(), commit):
            raise RepositoryCorrupt.object(commit.id, "is damaged: the Commit has another id")

    def find(self, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        """The rows as they are stored, past the cache: for those who check what is stored."""
        return self._backend.read_rows(self._repo, ids)

    def store(self, objs: Iterable[Obj]) -> frozenset[ObjId]:
        """Make the objects durable; return the ids that were new."""
        return self._backend.insert_rows(self._repo, self.encoded(objs))

    def encoded(self, objs: Iterable[Obj]) -> list[Row]:
        """The objects as rows. Refuses one that is larger than the store allows."""
        now, limit = self.now_micros(), self.settings.max_object_bytes
        rows = [encode(obj, now) for obj in objs]
        for row in rows:
            if len(row.data) > limit:
                raise BadRequest(
                    f"An object of {len(row.data)} bytes is larger than the store allows "
                    f"({limit}); split the commit into smaller ones"
                )
        return rows

    def publish(
        self,
        objs: Sequence[Obj],
        ref: Ref,
        pointer: ObjId,
        log: Sequence[LogRow] = (),
        rows: Sequence[Row] | None = None,
    ) -> Ref | None:
        """Store the objects, then move `ref` to `pointer`. None if the ref is elsewhere by now.

        `rows` are the objects encoded, where the caller has them at hand. Raises `UniqueTaken` if
        a unique value among them was claimed before; then nothing that anybody could see has
        changed.
        """
        rows = self.encoded(objs) if rows is None else rows
        moved = self.moved(ref, pointer)
        swap = RefSwap(ref.name, ref, moved)
        uniques = frozenset(row.id for row in rows if row.kind == UNIQUE_KIND)
        if self._apply is not None:
            applied = self._apply(self._repo, rows, swap, log)
            if not applied.swapped:
                _claimed(uniques, applied.new)
                return None
        else:
            _claimed(uniques, self._backend.insert_rows(self._repo, rows))
            if not self._backend.swap_ref(self._repo, swap):
                return None
            self.append_log(log)
        stored_bytes = {row.id: len(row.data) for row in rows}
        for obj in objs:
            # What the next commit needs. Values are for readers, who come later if at all, and a
            # large commit's values would push out the indexes.
            if type(obj) in _KEPT:
                self._cache.put(obj, stored_bytes[obj.id])
            if type(obj) is Index:
                obj.settle()
            elif type(obj) is Commit:
                self._grow_old(obj.id)
        return moved

    def _grow_old(self, commit: ObjId) -> None:
        """Let commits that are no longer near a head make room before the indexes do."""
        self._recent.append(commit)
        if len(self._recent) > _RECENT_COMMITS:
            self._cache.demote([self._recent.popleft()])

    def stage(self, objs: Iterable[Obj]) -> None:
        """Make objects readable that are about to be published, until `unstage`."""
        with self._staging:
            for obj in objs:
                self._staged[obj.id] = obj
                self._stagings[obj.id] = self._stagings.get(obj.id, 0) + 1

    def unstage(self, objs: Iterable[Obj]) -> None:
        """Undo one `stage`. Two branches may be about to publish the same segment or value."""
        with self._staging:
            for obj in objs:
                self._stagings[obj.id] -= 1
                if self._stagings[obj.id] == 0:
                    del self._staged[obj.id], self._stagings[obj.id]

    def demote(self, ids: Iterable[ObjId]) -> None:
        """A hint that these objects were replaced by newer ones."""
        self._cache.demote(ids)

    def afresh(self) -> Persist:
        """The same repository with nothing remembered yet: for those who check what is stored."""
        cache = ObjectCache(min(self._cache.max_bytes, _FRESH_CACHE_BYTES))
        return Persist(self._backend, cache, self.settings, self.clock_nanos, self._refutes)

    def _trusting(self) -> Persist:
        """For `refutes`, which reads other commits: these are not judged when they are loaded."""
        cache = ObjectCache(min(self._cache.max_bytes, _FRESH_CACHE_BYTES))
        return Persist(self._backend, cache, self.settings, self.clock_nanos)

    # References

    def refs(self, names: Sequence[str]) -> dict[str, Ref]:
        found = self._backend.read_refs(self._repo, names)
        for ref in found.values():
            # Nothing vouches for a ref but its store. This is what can be seen without looking up.
            if len(ref.pointer) != ID_BYTES:
                raise damaged_ref(ref.name)
        return found

    def ref(self, name: str) -> Ref | None:
        return self.refs([name]).get(name)

    def swap_ref(
        self, name: str, expected: Ref | None, new: Ref | None, log: Sequence[LogRow] = ()
    ) -> bool:
        """Create, move or delete a ref, and tell the ref-log if it worked."""
        swap = RefSwap(name, expected, new)
        if self._apply is not None and log:
            return self._apply(self._repo, (), swap, log).swapped
        swapped = self._backend.swap_ref(self._repo, swap)
        if swapped:
            self.append_log(log)
        return swapped

    def check_name(self, name: str) -> None:
        """Refuse the full name of a ref that the backend has no room for."""
        if isinstance(self._backend, LimitsNames):
            most = self._backend.most_name_characters
            if len(name) > most:
                raise BadRequest(
                    f"A name of {len(name)} characters, counted with 'refs/heads/' or 'refs/tags/'"
                    f" before it, is longer than the store allows ({most})"
                )

    def moved(self, ref: Ref, pointer: ObjId) -> Ref:
        """The ref after it moved, remembering where it was for a while."""
        if pointer == ref.pointer:
            return ref
        now = self.now_micros()
        oldest = now - self.settings.previous_heads_seconds * 1_000_000
        kept = [p for p in ref.previous if p.until_micros >= oldest]
        kept.insert(0, PreviousPointer(ref.pointer, now))
        previous = tuple(kept[: self.settings.previous_heads_count])
        return msgspec.structs.replace(ref, pointer=pointer, previous=previous)

    # The ref-log

    def append_log(self, rows: Sequence[LogRow]) -> None:
        if self._log is not None and rows:
            self._log.append_log(self._repo, rows)

    def read_log(self, before: bytes | None, limit: int) -> list[LogRow]:
        return [] if self._log is None else self._log.read_log(self._repo, before, limit)


class UniqueTaken(Exception):
    """A value that must be used once was in use already."""

    def __init__(self, ids: frozenset[ObjId]) -> None:
        super().__init__(f"{len(ids)} unique values are taken")
        self.ids = ids


def _claimed(uniques: frozenset[ObjId], new: frozenset[ObjId]) -> None:
    taken = uniques - new
    if taken:
        raise UniqueTaken(taken)


def _typed(kind: type[T], id: ObjId, obj: Obj) -> T:
    if not isinstance(obj, kind):
        raise RepositoryCorrupt.object(id, f"is a {type(obj).__name__}, not a {kind.__name__}")
    if kind is Commit and obj.incomplete:  # type: ignore[union-attr]
        raise RepositoryCorrupt(
            f"Commit {id.hex()} is incomplete: its import was cut short; import it again"
        )
    return obj

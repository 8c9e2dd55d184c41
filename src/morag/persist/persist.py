"""`Persist`: loads and stores typed objects and refs on a backend."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from morag.backend.base import (
    AppliesAtOnce,
    KeepsRefLog,
    LimitsNames,
    Private,
    QuickSwapsTogether,
    RefSwap,
    SwapsTogether,
    SyncsLater,
)
from morag.backend.read_only import ReadOnlyBackend
from morag.errors import BadRequest, RepositoryCorrupt
from morag.format.damage import damaged_ref
from morag.format.ids import ID_BYTES
from morag.format.object_codec import decode, encode
from morag.format.objects import Commit, Index, IndexSegments, RefObj
from morag.format.proof import is_proven
from morag.format.records import UNIQUE_KIND, PreviousPointer
from morag.persist.cache import ObjectCache
from morag.persist.near import NearReads
from morag.persist.staging import Staging

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from morag.backend.base import Applied, Backend, LogRow
    from morag.config import Settings
    from morag.format.objects import Obj
    from morag.format.records import ObjId, Ref, Row

T = TypeVar("T", bound="Obj")
F = TypeVar("F")
A = TypeVar("A", "Applied", bool)

_RECENT_COMMITS: Final = 500
_FRESH_CACHE_BYTES: Final = 32 * 1024 * 1024
_KEPT: Final = frozenset({Commit, Index, IndexSegments, RefObj})


class ObjectMissing(RepositoryCorrupt):
    """Objects are missing that another object or a ref points to."""

    def __init__(self, ids: Sequence[ObjId]) -> None:
        listed = ", ".join(f"'{id.hex()}'" for id in ids)
        objects = f"Object{'s' if len(ids) > 1 else ''} {listed}"
        super().__init__(str(RepositoryCorrupt.found(objects, "not found")))
        self.ids = tuple(ids)


class Form(msgspec.Struct, Generic[T, F], frozen=True):
    """Something that follows from an object alone, such as its JSON. The name tells forms apart."""

    name: str
    make: Callable[[T], F]
    bytes_of: Callable[[F], int]


class Persist:
    """Objects and refs of one repository.

    Every object is checked against its id when it is loaded, so cached objects are intact.
    A commit whose id does not follow from its row alone (`format/proof.py`) is passed to `refutes`,
    which compares it with other stored objects; without `refutes` it is accepted.
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
        self._staging = Staging()
        self.near = NearReads()
        self._apply = backend.apply if isinstance(backend, AppliesAtOnce) else None
        self._quick = backend if isinstance(backend, SyncsLater) else None
        self._quick_together = backend if isinstance(backend, QuickSwapsTogether) else None
        self._apply_all = backend.apply_all if isinstance(backend, SwapsTogether) else None
        self.swaps_together = self._apply_all is not None
        self._log = backend if isinstance(backend, KeepsRefLog) else None
        self._most_name_characters = (
            backend.most_name_characters if isinstance(backend, LimitsNames) else None
        )
        self.read_only = isinstance(backend, ReadOnlyBackend)
        self.is_shared = not isinstance(backend, Private)

    @property
    def writes_quickly(self) -> bool:
        """Whether `publish` can do without waiting, so that an event loop may call it."""
        return self._quick is not None

    @property
    def swaps_together_quickly(self) -> bool:
        """The same for `publish_all`."""
        return self._quick_together is not None

    @property
    def needs_sync(self) -> bool:
        """Whether what was published without waiting is durable only after `sync`."""
        return self._quick is not None and self._quick.needs_sync

    def sync(self) -> None:
        if self._quick is not None:
            self._quick.sync()

    def now_micros(self) -> int:
        return self.clock_nanos() // 1000

    # Objects

    def fetch(self, kind: type[T], id: ObjId) -> T:
        obj = self._cache.get(id)
        if obj is None:
            return self.fetch_all(kind, [id])[0]
        return _typed(kind, id, obj)

    def fetch_all(self, kind: type[T], ids: Sequence[ObjId]) -> list[T]:
        """The objects in the requested order; those that are not cached are read together."""
        cached = [obj for id in ids if (obj := self._cache.get(id)) is not None]
        if len(cached) < len(ids):
            found = self._load(ids)
            cached = [found[id] for id in ids]
        return [_typed(kind, id, obj) for id, obj in zip(ids, cached, strict=True)]

    def fetch_any(self, id: ObjId) -> Obj:
        """An object of one of several kinds, depending on its writer."""
        return self._cache.get(id) or self._load([id])[id]

    def form(self, obj: T, form: Form[T, F]) -> F:
        """A form of the object, which is made only once while the object is cached."""
        found: F | None = self._cache.form(form.name, obj.id)
        if found is None:
            found = form.make(obj)
            self._cache.put_form(form.name, obj.id, found, form.bytes_of(found))
        return found

    def kept_forms(self, form: Form[T, F], ids: Sequence[ObjId]) -> list[F] | None:
        """The forms of several objects, if all of them were made before and are still cached."""
        return self._cache.forms(form.name, ids)

    def _load(self, ids: Sequence[ObjId]) -> dict[ObjId, Obj]:
        found: dict[ObjId, Obj] = {}
        missing: list[ObjId] = []
        for id in dict.fromkeys(ids):
            obj = self._cache.get(id) or self._staging.get(id)
            if obj is None:
                missing.append(id)
            else:
                found[id] = obj
        if missing:
            self.near.check_store()
            rows = self._backend.read_rows(self._repo, missing)
            lost = [id for id in missing if id not in rows]
            if lost:
                raise ObjectMissing(lost)
            for id, row in rows.items():
                obj = found[id] = decode(row)
                if self._refutes is not None and type(obj) is Commit and not is_proven(obj):
                    self._refuse_if_refuted(obj, self._refutes)
                self._cache.put(obj, len(row.data))
        return found

    def _refuse_if_refuted(
        self, commit: Commit, refutes: Callable[[Persist, Commit], bool]
    ) -> None:
        if refutes(self._without_refutation(), commit):
            raise RepositoryCorrupt.object(commit.id, "is damaged: the Commit has another id")

    def find(self, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        """The stored rows, past the cache."""
        self.near.check_store()
        return self._backend.read_rows(self._repo, ids)

    def store(self, objs: Iterable[Obj]) -> frozenset[ObjId]:
        """Make the objects durable; return the ids that were new."""
        return self._backend.insert_rows(self._repo, self.encoded(objs))

    def store_and_keep(self, objs: Sequence[Obj]) -> None:
        """Make the objects durable, and cache those that the next commit needs."""
        rows = self.encoded(objs)
        self._backend.insert_rows(self._repo, rows)
        self._keep(objs, rows)

    def touch(self, id: ObjId) -> bool:
        """Write the stored row of an object again, with the current time. False if it is gone.

        Past the cache: another process may have removed the object from the store.
        """
        row = self.find([id]).get(id)
        if row is None:
            return False
        now = msgspec.structs.replace(row, referenced_micros=self.now_micros())
        return self._backend.swap_row(self._repo, row, now)

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
        *,
        may_wait: bool = True,
    ) -> Ref | None:
        """Store the objects, then move `ref` to `pointer`. None if another writer moved the ref.

        `rows` are the encoded objects, if the caller has them. Raises `UniqueTaken` if a unique
        value among them was claimed before; then no visible change was made. Without `may_wait`, a
        store that writes quickly is not synced (see `needs_sync`), and raises `WouldWait` if the
        write would have to wait; other stores wait.
        """
        rows = self.encoded(objs) if rows is None else rows
        moved = self.moved(ref, pointer)
        swap = RefSwap(ref.name, ref, moved)
        uniques = frozenset(row.id for row in rows if row.kind == UNIQUE_KIND)
        if self._apply is not None:
            if may_wait or self._quick is None:
                applied = self._apply(self._repo, rows, swap, log)
            else:
                applied = _unless_refused(self._quick.try_apply(self._repo, rows, swap, log))
            if not applied.swapped:
                _check_claims(uniques, applied.new)
                return None
        else:
            _check_claims(uniques, self._backend.insert_rows(self._repo, rows))
            if not self._backend.swap_ref(self._repo, swap):
                return None
            self.append_log(log)
        self._keep(objs, rows)
        return moved

    def publish_all(
        self,
        objs: Sequence[Obj],
        swaps: Sequence[RefSwap],
        log: Sequence[LogRow],
        *,
        may_wait: bool = True,
    ) -> bool:
        """Store the objects and change all refs in one step. False if a ref was changed before.

        Only for a backend that `swaps_together`, and without unique values. See `publish` for
        `may_wait`.
        """
        assert self._apply_all is not None, "the backend swaps refs together"
        rows = self.encoded(objs)
        if may_wait or self._quick_together is None:
            applied = self._apply_all(self._repo, rows, swaps, log)
        else:
            applied = _unless_refused(
                self._quick_together.try_apply_all(self._repo, rows, swaps, log)
            )
        if applied:
            self._keep(objs, rows)
        return applied

    def _keep(self, objs: Sequence[Obj], rows: Sequence[Row]) -> None:
        """Cache published objects."""
        stored_bytes = {row.id: len(row.data) for row in rows}
        for obj in objs:
            # Keep the objects that the next commit needs. Values are for readers, and the values
            # of a large commit would evict the indexes.
            if type(obj) in _KEPT:
                self._cache.put(obj, stored_bytes[obj.id])
            if type(obj) is Index:
                obj.settle()
            elif type(obj) is Commit:
                self._note_recent(obj.id)

    def _note_recent(self, commit: ObjId) -> None:
        """Let the cache evict commits that are no longer near a head before the indexes."""
        self._recent.append(commit)
        if len(self._recent) > _RECENT_COMMITS:
            self._cache.demote([self._recent.popleft()])

    def stage(self, objs: Iterable[Obj]) -> None:
        """Make objects readable that are about to be published, until `unstage`."""
        self._staging.add(objs)

    def unstage(self, objs: Iterable[Obj]) -> None:
        self._staging.remove(objs)

    def demote(self, ids: Iterable[ObjId]) -> None:
        """A hint that these objects were replaced by newer ones."""
        self._cache.demote(ids)

    def with_empty_cache(self) -> Persist:
        """The same repository with an empty cache, for consistency checks."""
        cache = ObjectCache(min(self._cache.max_bytes, _FRESH_CACHE_BYTES))
        return Persist(self._backend, cache, self.settings, self.clock_nanos, self._refutes)

    def _without_refutation(self) -> Persist:
        """For `refutes`, which must not check the commits that it reads in the same way."""
        cache = ObjectCache(min(self._cache.max_bytes, _FRESH_CACHE_BYTES))
        return Persist(self._backend, cache, self.settings, self.clock_nanos)

    # References

    def refs(self, names: Sequence[str]) -> dict[str, Ref]:
        looked_up = self.near.find(names)
        if looked_up is not None:
            return looked_up
        self.near.check_store()
        found = self._backend.read_refs(self._repo, names)
        for ref in found.values():
            # A ref has no hash. Check what can be checked without further reads.
            if len(ref.pointer) != ID_BYTES:
                raise damaged_ref(ref.name)
        return found

    def ref(self, name: str) -> Ref | None:
        return self.refs([name]).get(name)

    def swap_ref(
        self, name: str, expected: Ref | None, new: Ref | None, log: Sequence[LogRow] = ()
    ) -> bool:
        """Create, move or delete a ref, and write to the ref-log if that succeeded."""
        swap = RefSwap(name, expected, new)
        if self._apply is not None and log:
            return self._apply(self._repo, (), swap, log).swapped
        swapped = self._backend.swap_ref(self._repo, swap)
        if swapped:
            self.append_log(log)
        return swapped

    def check_name(self, name: str) -> None:
        """Refuse a full name that is too long for the backend."""
        most = self._most_name_characters
        if most is not None and len(name) > most:
            raise BadRequest(
                f"A name of {len(name)} characters, counted with 'refs/heads/' or 'refs/tags/'"
                f" before it, is longer than the store allows ({most})"
            )

    def moved(self, ref: Ref, pointer: ObjId) -> Ref:
        """The ref after a move, with its previous pointers."""
        if pointer == ref.pointer:
            return ref
        now = self.now_micros()
        oldest = now - self.settings.previous_heads_seconds * 1_000_000
        kept = ref.previous
        if kept and kept[-1].until_micros < oldest:  # The newest come first.
            kept = tuple(p for p in kept if p.until_micros >= oldest)
        previous = (PreviousPointer(ref.pointer, now), *kept)[: self.settings.previous_heads_count]
        return msgspec.structs.replace(ref, pointer=pointer, previous=previous)

    # The ref-log

    def append_log(self, rows: Sequence[LogRow]) -> None:
        if self._log is not None and rows:
            self._log.append_log(self._repo, rows)

    def read_log(self, before: bytes | None, limit: int) -> list[LogRow]:
        return [] if self._log is None else self._log.read_log(self._repo, before, limit)


class WouldWait(Exception):
    """Work that must be quick would have to wait, or take long: nothing was done."""


class UniqueTaken(Exception):
    """A value that must be unique is already in use."""

    def __init__(self, ids: frozenset[ObjId]) -> None:
        super().__init__(f"{len(ids)} unique values are taken")
        self.ids = ids


def _unless_refused(applied: A | None) -> A:
    """The result of a write without waiting, unless the backend would have to wait."""
    if applied is None:
        raise WouldWait
    return applied


def _check_claims(uniques: frozenset[ObjId], new: frozenset[ObjId]) -> None:
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

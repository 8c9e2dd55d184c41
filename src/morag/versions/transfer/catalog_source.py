"""A catalog as a source of imports: a running server, Morag or Nessie, or another repository.

The catalog shows what its API shows. So the times at which commits were created are their commit
times, numbers count from the start of each history, and notes of tags are lost.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct

from morag.backend.memory import MemoryBackend
from morag.config import Settings
from morag.format.export_messages import ExportedDescription, ExportedRef
from morag.logic.reflog import RefMove, RefOperation, line_of
from morag.model.names import full_name
from morag.model.times import parse_instant
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from morag.versions.configs import CONFIGS
from morag.versions.repository import Repository
from morag.versions.resolve import object_id
from morag.versions.transfer.commit_spool import CommitSpool
from morag.versions.transfer.extra_file import ExtraMove, extras_of
from morag.versions.transfer.history_reader import HistoryReader
from morag.versions.transfer.reference_choice import chosen_names, default_branch_among
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from morag.catalog import Catalog
    from morag.format.export_messages import ExportedCommit, RelatedObj
    from morag.format.records import ObjId
    from morag.model.configs import RepositoryConfig
    from morag.model.names import ReferenceKind
    from morag.model.references import RefLogEntry
    from morag.versions.transfer.extra_file import Extra

_MOST_READS_OF_REFERENCES: Final = 5
_MOVES_AT_ONCE: Final = 1000
_CONFIG_ID: Final = bytes.fromhex("6d6f7261672d636f6e6669672d303031")
_NO_TIME: Final = 0


class PullOptions(Struct, frozen=True, kw_only=True):
    """`references` are patterns of names; without any, all references are read."""

    references: tuple[str, ...] = ()
    connections: int = 8
    is_morag: bool = True
    """Whether it is not Nessie's: only Morag has a ref-log, and shows headers in their order."""
    identity: str = ""
    """Tells the repository from others. An import is resumed only with the same one."""
    oldest_commit_time: str | None = None


class CatalogSource:
    """Reads a catalog while it is in use. References are read first, and everything they need then.

    If references keep moving, each is as it was at some moment of the last reading.
    """

    def __init__(
        self,
        catalog: Catalog,
        options: PullOptions,
        sleep: Callable[[float], None],
        show: Callable[[str, int], None] = lambda stage, done: None,
    ) -> None:
        """`show` is called with a stage, and how much of it is done."""
        self._catalog = catalog
        self._options = options
        self._sleep = sleep
        self._show = show
        self._pointers = self._pinned()
        self._default = default_branch_among(list(self._pointers), catalog.default_branch)
        self._created_micros: dict[str, int] = {}
        self._spool = CommitSpool()
        self._is_read = False
        self._lock = Lock()

    @property
    def identity(self) -> str:
        return self._options.identity

    @property
    def commit_count(self) -> int | None:
        return len(self._spool) if self._is_read else None

    def description(self) -> ExportedDescription:
        oldest = self._options.oldest_commit_time
        return ExportedDescription(
            default_branch=self._default,
            oldest_commit_millis=None if oldest is None else parse_instant(oldest) // 1_000_000,
        )

    def objects(self) -> Iterator[RelatedObj]:
        """None: an import claims the content ids that it finds in commits."""
        return iter(())

    def commits(self, *, ordered: bool) -> Iterator[ExportedCommit]:
        """All commits, which are always ordered. The first call reads them."""
        self._read()
        return self._spool.oldest_first()

    def references(self) -> Iterator[ExportedRef]:
        for name, pointer in self._pointers.items():
            yield ExportedRef(name, pointer, created_micros=self._created_micros.get(name))

    def extras(self) -> Iterator[Extra]:
        config = self._catalog.repository_config()
        if config is not None:
            yield from _config_extras(config)
        if self._options.is_morag:
            yield from self._moves()

    def close(self) -> None:
        self._spool.close()

    def __enter__(self) -> CatalogSource:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _pinned(self) -> dict[str, ObjId]:
        """The chosen references, by full names, read again until none moved in between."""
        found: dict[str, ObjId] = {}
        for _ in range(_MOST_READS_OF_REFERENCES):
            before, found = found, {}
            for reference in self._catalog.references.list():
                kind = cast("ReferenceKind", reference.type)
                found[full_name(kind, reference.name or "")] = object_id(reference.hash)
            if before == found:
                break
        return {name: found[name] for name in chosen_names(list(found), self._options.references)}

    def _read(self) -> None:
        if self._is_read:
            return
        first = self._pointers[full_name("BRANCH", self._default)]
        with HistoryReader(
            self._catalog,
            self._spool,
            self._options.connections,
            self._sleep,
            self._count,
            is_morag=self._options.is_morag,
        ) as reader:
            reader.read(first, self._pointers.values())
        self._is_read = True

    def _count(self, added: int) -> None:
        with self._lock:  # Several threads read.
            self._show("read", len(self._spool))

    def _moves(self) -> Iterator[ExtraMove]:
        """The ref-log of the chosen references. It also says when they were created."""
        token: str | None = None
        while True:
            page = self._catalog.references.moves(_MOVES_AT_ONCE, token)
            for entry in page.items:
                move = _move(entry)
                if self._options.references and move.name not in self._pointers:
                    continue
                if move.operation is RefOperation.CREATE_REFERENCE and move.name in self._pointers:
                    # The newest one counts, which comes first.
                    self._created_micros.setdefault(move.name, move.at_micros)
                row = line_of(move)
                yield ExtraMove(row.key, row.data)
            token = page.token
            if token is None:
                return


def _move(entry: RefLogEntry) -> RefMove:
    kind = cast("ReferenceKind", entry.reference.type)
    return RefMove(
        full_name(kind, entry.reference.name or ""),
        RefOperation(entry.operation),
        object_id(entry.hash_before),
        object_id(entry.hash_after),
        entry.who,
        parse_instant(entry.time) // 1000,
        entry.commits,
    )


def _config_extras(config: RepositoryConfig) -> Iterator[Extra]:
    """The configuration as a repository stores it, taken from one in memory.

    Its times and ids are always the same, so that a resumed import stores it once.
    """
    backend, settings = MemoryBackend(), Settings()
    world = World(clock_nanos=lambda: _NO_TIME, new_uuid=lambda: _CONFIG_ID)
    with Repository(backend, settings, world) as repository:
        repository.set_repository_config(config)
        persist = Persist(backend, ObjectCache(settings.cache_bytes), settings, world.clock_nanos)
        stored = persist.ref(CONFIGS)
        assert stored is not None, "a configuration is stored on its reference"
        yield from extras_of(persist, [stored], [], 0, lambda name: False)

"""What the tests of the rules have in common: short words for content, and a look at everything."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from morag import (
    ContentKey,
    Delete,
    IcebergTable,
    IcebergView,
    Namespace,
    Put,
    Repository,
    Settings,
)
from morag.backend.memory import MemoryBackend
from morag.index.keys import store_key
from morag.logic import history
from morag.logic.commits import Add, Draft, build_commit
from morag.model.names import full_name
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from morag.versions.contents import value_of_content
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable

    from morag.backend.base import ObjId, Ref, Row
    from morag.model.conflicts import Conflict
    from morag.model.content import Content
    from morag.model.merging import MergeResult
    from morag.model.operations import Operation

NO_ANCESTOR = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
UNKNOWN = "deadbeef" * 8
SECOND = 1_000_000_000


def key(dotted: str) -> ContentKey:
    return ContentKey(tuple(dotted.split(".")))


def table(location: str, id: str | None = None) -> IcebergTable:
    return IcebergTable(
        id=id, metadata_location=location, snapshot_id=1, schema_id=2, spec_id=3, sort_order_id=4
    )


def view(location: str, id: str | None = None) -> IcebergView:
    return IcebergView(id=id, metadata_location=location, version_id=1, schema_id=2)


def put(dotted: str, content: Content | str, id: str | None = None) -> Put:
    """A text stands for a table with its metadata there."""
    return Put(key(dotted), table(content, id) if isinstance(content, str) else content)


def delete(dotted: str) -> Delete:
    return Delete(key(dotted))


def rename(old: str, new: str, content: Content) -> list[Operation]:
    return [delete(old), Put(key(new), content)]


def create(repo: Repository, branch: str, **tables: str) -> dict[str, str]:
    """Commit new tables; the content ids by key."""
    operations = [put(name, location) for name, location in tables.items()]
    added = repo.commit(branch, operations, f"create {', '.join(tables)}").added
    return {str(name): id for name, id in added.items()}


def update(repo: Repository, branch: str, dotted: str, location: str) -> str:
    """Commit another version of a table; the hash."""
    found = repo.contents.get(branch, key(dotted))
    operation = put(dotted, location, found.id)
    return repo.commit(branch, [operation], f"update {dotted}").hash


def move(repo: Repository, branch: str, old: str, new: str, location: str | None = None) -> str:
    """Commit a rename, perhaps with other content; the hash."""
    content = repo.contents.get(branch, key(old))
    if location is not None:
        content = msgspec.structs.replace(content, metadata_location=location)
    return repo.commit(branch, rename(old, new, content), f"rename {old} to {new}").hash


def head(repo: Repository, name: str = "main") -> str:
    return repo.references.get(name).hash


def tables(repo: Repository, at: str = "main") -> dict[str, str]:
    """Where the metadata of every table is, by key; namespaces show as such."""
    return {
        str(entry.key): getattr(entry.content, "metadata_location", entry.type)
        for entry in repo.contents.entries(at, with_content=True)
    }


def content_id(repo: Repository, at: str, dotted: str) -> str:
    id = repo.contents.get(at, key(dotted)).id
    assert id is not None
    return id


def messages(repo: Repository, at: str = "main") -> list[str]:
    return [entry.meta.message for entry in repo.history.log(at)]


def namespace(dotted: str, id: str | None = None, **properties: str) -> Namespace:
    return Namespace(id=id, elements=tuple(dotted.split(".")), properties=properties)


def found(conflicts: Iterable[Conflict]) -> list[tuple[str, str]]:
    return [(c.conflict_type.value, str(c.key)) for c in conflicts]


def outcome(result: MergeResult) -> dict[str, str]:
    """What became of each key: the conflict, or else the behavior."""
    return {
        str(detail.key): detail.conflict.conflict_type.value
        if detail.conflict
        else detail.merge_behavior.value
        for detail in result.details
    }


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self, nanos: int = 1_700_000_000 * SECOND) -> None:
        self.nanos = nanos

    def __call__(self) -> int:
        return self.nanos

    def pass_seconds(self, seconds: float) -> None:
        self.nanos += round(seconds * SECOND)


class Store:
    """A repository together with the rows below it."""

    def __init__(self, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self.backend = MemoryBackend()
        self.settings = settings or Settings()
        self.clock = clock or Clock()
        self._random = Random(1)
        self.repo = self.reopened()
        self.persist = Persist(self.backend, ObjectCache(0), self.settings, self.clock)

    def reopened(self) -> Repository:
        """The same repository with nothing cached. Chance is the same in every run."""
        world = World(
            clock_nanos=self.clock,
            random_bytes=self._random.randbytes,
            new_uuid=lambda: self._random.randbytes(16),
        )
        return Repository(self.backend, self.settings, world)

    def rows(self) -> dict[ObjId, Row]:
        return {row.id: row for row in self.backend.scan_rows("")}

    def refs(self) -> dict[str, Ref]:
        users = [
            full_name("TAG" if ref.type == "TAG" else "BRANCH", ref.name or "")
            for ref in self.repo.references.list()
        ]
        return self.backend.read_refs("", ["int/refs", "int/repo", *users])

    def everything(self) -> tuple[Any, ...]:
        """All that is stored, to be compared with itself later."""
        return self.rows(), self.refs(), self.backend.read_log("", None, 1_000)

    def replace(self, id: ObjId, data: bytes) -> None:
        row = self.rows()[id]
        assert self.backend.swap_row("", row, msgspec.structs.replace(row, data=data))

    def plant(self, branch: str, dotted: str, content: Content) -> str:
        """Commit content with an id of any form, as repositories from former times have it."""
        ref = self.persist.ref(full_name("BRANCH", branch))
        assert ref is not None
        value = value_of_content(content)
        add = Add(store_key(key(dotted)), value.payload, value.id)
        parent = history.head_commit(self.persist, ref.pointer)
        built = build_commit(self.persist, parent, Draft(message="from former times", adds=[add]))
        assert self.persist.publish([value, built.commit], ref, built.commit.id) is not None
        return built.commit.id.hex()

"""Short constructors of content and operations, and a store whose rows a test can inspect."""

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
    Unchanged,
)
from morag.backend.memory import MemoryBackend
from morag.format.content_values import value_of_content
from morag.index.keys import store_key
from morag.logic import history
from morag.logic.commits import Add, Draft, build_commit
from morag.model.merging import MergeResult
from morag.model.names import full_name
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable

    from morag import CommitMeta
    from morag.backend.base import ObjId, Ref, Row
    from morag.model.conflicts import Conflict
    from morag.model.content import Content
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
    """A text as content is the metadata location of a table."""
    return Put(key(dotted), table(content, id) if isinstance(content, str) else content)


def delete(dotted: str) -> Delete:
    return Delete(key(dotted))


def rename(old: str, new: str, content: Content) -> list[Operation]:
    return [delete(old), Put(key(new), content)]


def create(repo: Repository, branch: str, **tables: str) -> dict[str, str]:
    """Commit new tables; return their content ids by key."""
    operations = [put(name, location) for name, location in tables.items()]
    added = repo.commit(branch, operations, f"create {', '.join(tables)}").added
    return {str(name): id for name, id in added.items()}


def update(repo: Repository, branch: str, dotted: str, location: str) -> str:
    """Commit another version of a table; return the hash of the commit."""
    found = repo.contents.get(branch, key(dotted))
    operation = put(dotted, location, found.id)
    return repo.commit(branch, [operation], f"update {dotted}").hash


def move(repo: Repository, branch: str, old: str, new: str, location: str | None = None) -> str:
    """Commit a rename, optionally with a new location; return the hash of the commit."""
    content = repo.contents.get(branch, key(old))
    if location is not None:
        content = msgspec.structs.replace(content, metadata_location=location)
    return repo.commit(branch, rename(old, new, content), f"rename {old} to {new}").hash


def head(repo: Repository, name: str = "main") -> str:
    return repo.references.get(name).hash


def tables(repo: Repository, at: str = "main") -> dict[str, str]:
    """The metadata locations of all tables by key; for other content the type."""
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


def last_meta(repo: Repository, at: str = "main") -> CommitMeta:
    return repo.history.log(at).page(1).items[0].meta


def namespace(dotted: str, id: str | None = None, **properties: str) -> Namespace:
    return Namespace(id=id, elements=tuple(dotted.split(".")), properties=properties)


def conflict_pairs(conflicts: Iterable[Conflict]) -> list[tuple[str, str]]:
    return [(c.conflict_type.value, str(c.key)) for c in conflicts]


def outcome(result: MergeResult) -> dict[str, str]:
    """The conflict of each key, or its merge behavior if it has none."""
    return {
        str(detail.key): detail.conflict.conflict_type.value
        if detail.conflict
        else detail.merge_behavior.value
        for detail in result.details
    }


def applied_result(
    repo: Repository, result: MergeResult, before: str, common_ancestor: str | None
) -> MergeResult:
    """The expected result of changing `main`, which was at `before`; only details are copied."""
    return MergeResult(
        was_applied=True,
        was_successful=True,
        resultant_target_hash=head(repo),
        common_ancestor=common_ancestor,
        target_branch="main",
        effective_target_hash=before,
        expected_hash=before,
        details=result.details,
    )


def assert_and_delete_from_old_head(repo: Repository) -> None:
    """Assert and delete the table `t` with an expected hash that is no longer the head."""
    old_head = head(repo)
    update(repo, "main", "young", "y2")
    repo.commit("main", [Unchanged(key("t"))], "same", expected=old_head)
    repo.commit("main", [delete("t")], "drop", expected=old_head)
    assert tables(repo) == {"young": "y2"}


class Clock:
    """A clock that only a test advances."""

    def __init__(self, nanos: int = 1_700_000_000 * SECOND) -> None:
        self.nanos = nanos

    def __call__(self) -> int:
        return self.nanos

    def pass_seconds(self, seconds: float) -> None:
        self.nanos += round(seconds * SECOND)


class Store:
    """A repository and access to its stored rows."""

    def __init__(self, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self.backend = MemoryBackend()
        self.settings = settings or Settings()
        self.clock = clock or Clock()
        self._random = Random(1)
        self.repo = self.reopened()
        self.persist = Persist(self.backend, ObjectCache(0), self.settings, self.clock)

    def reopened(self) -> Repository:
        """The same repository with an empty cache. Its random numbers are the same in every run."""
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
        """All rows, refs and lines of the ref-log, for comparison."""
        return self.rows(), self.refs(), self.backend.read_log("", None, 1_000)

    def replace(self, id: ObjId, data: bytes) -> None:
        row = self.rows()[id]
        assert self.backend.swap_row("", row, msgspec.structs.replace(row, data=data))

    def plant(self, branch: str, dotted: str, content: Content) -> str:
        """Commit content with an id of any form, as old repositories have."""
        ref = self.persist.ref(full_name("BRANCH", branch))
        assert ref is not None
        value = value_of_content(content)
        add = Add(store_key(key(dotted)), value.payload, value.id)
        parent = history.head_commit(self.persist, ref.pointer)
        built = build_commit(
            self.persist, parent, Draft(message="from an old repository", adds=[add])
        )
        assert self.persist.publish([value, built.commit], ref, built.commit.id) is not None
        return built.commit.id.hex()

"""A history with everything that transfers must keep, of any length, the same for the same seed."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from morag.errors import BadRequest
from morag.model.content import UDF, DeltaLakeTable, IcebergTable, IcebergView, Namespace
from morag.model.keys import ContentKey
from morag.model.merging import MergeBehavior
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Put

if TYPE_CHECKING:
    from morag.model.content import Content
    from morag.model.operations import Operation
    from morag.versions.repository import Repository

_ODD_NAMES: Final = (
    "with.dots",
    "zero\u200bwidth",
    "ü ñ",
    "\U0001f600",
    "*",
    "a/b%c\\d",
    "x" * 150,
)
_MOST_BRANCHES: Final = 8
_MOST_KEYS: Final = 500


def generate(repo: Repository, commits: int, seed: int) -> None:
    """Make commits, and some merges, on branches that are created, merged and dropped."""
    _History(repo, Random(seed)).make(commits)


class _History:
    def __init__(self, repo: Repository, random: Random) -> None:
        self._repo = repo
        self._random = random
        self._held: dict[str, dict[ContentKey, Content]] = {"main": {}}
        self._made = 0
        self._named = 0

    def make(self, commits: int) -> None:
        key = ContentKey.of("db")
        self._commit(
            "main", [Put(key, Namespace(elements=("db",), properties={"b": "1", "a": ""}))]
        )
        while self._made < commits:
            chance = self._random.random()
            if chance < 0.01:
                self._fork()
            elif chance < 0.015:
                self._merge()
            elif chance < 0.02:
                self._tag()
            else:
                branch = self._random.choice(list(self._held))
                self._commit(branch, self._operations(branch))

    def _operations(self, branch: str) -> list[Operation]:
        held = self._held[branch]
        found: dict[ContentKey, list[Operation]] = {}
        ids: set[str | None] = set()  # After a merge of renames, two keys may share one.
        for _ in range(self._random.choice((1, 1, 1, 2, 3, 8))):
            key = self._key()
            content = held.get(key)
            if key in found or (content is not None and content.id in ids):
                continue
            ids.add(None if content is None else content.id)
            if content is None:
                found[key] = [Put(key, self._content())]
            elif self._random.random() < 0.8 or isinstance(content, Namespace):
                found[key] = [Put(key, self._changed(content))]
            elif self._random.random() < 0.5:
                found[key] = [Delete(key)]
            elif self._random.random() < 0.5:
                found[key] = [Delete(key), Put(key, replace(content, id=None))]
            else:
                to = self._key()
                if to not in held and to not in found:
                    found[key], found[to] = [Delete(key)], [Put(to, content)]
        groups = list(found.values())
        self._random.shuffle(groups)
        operations = [operation for group in groups for operation in group]
        return operations or [Put(ContentKey.of("db"), held[ContentKey.of("db")])]

    def _key(self) -> ContentKey:
        if self._random.random() < 0.02:
            return ContentKey.of("db", self._random.choice(_ODD_NAMES))
        return ContentKey.of("db", f"table_{int(self._random.paretovariate(0.4)) % _MOST_KEYS}")

    def _content(self) -> Content:
        number = self._random.getrandbits(40)
        chance = self._random.random()
        if chance < 0.9:
            return IcebergTable(
                metadata_location=f"s3://bucket/{number}.metadata.json",
                snapshot_id=number - 2**39,
                schema_id=1,
                spec_id=2,
                sort_order_id=3,
            )
        if chance < 0.95:
            return IcebergView(metadata_location=f"v{number}", version_id=number, schema_id=1)
        if chance < 0.98:
            return DeltaLakeTable(metadata_location_history=(f"d{number}",), last_checkpoint="c")
        return UDF(sql_text=f"select {number}", dialect="spark")

    def _changed(self, content: Content) -> Content:
        number = self._random.getrandbits(40)
        match content:
            case IcebergTable():
                return replace(content, metadata_location=f"s3://bucket/{number}.metadata.json")
            case IcebergView():
                return replace(content, version_id=number)
            case DeltaLakeTable():
                return replace(content, last_checkpoint=f"c{number}")
            case UDF():
                return replace(content, sql_text=f"select {number}")
            case Namespace():
                return replace(content, properties={f"p{number % 5}": str(number)})

    def _commit(self, branch: str, operations: list[Operation]) -> None:
        self._made += 1
        meta = CommitMeta(message=f"{self._made}: {self._random.random()}")
        if self._random.random() < 0.1:
            meta = CommitMeta(
                message=f"{self._made}\n\nmore ü \U0001f600",
                authors=("Ann <ann@example.org>", "Bob"),
                author_time="2024-02-29T12:34:56.789123Z",
                signed_off_by=("Sig", "Sig 2"),
                properties={f"P{i}": ("x", "", str(i)) for i in range(self._random.randrange(9))},
            )
        added = self._repo.commit(branch, operations, meta).added
        held = self._held[branch]
        for operation in sorted(operations, key=lambda op: isinstance(op, Put)):
            if isinstance(operation, Put):
                id = added.get(operation.key, operation.content.id)
                held[operation.key] = replace(operation.content, id=id)
            else:
                held.pop(operation.key)

    def _fork(self) -> None:
        if len(self._held) < _MOST_BRANCHES:
            name = self._new_name("dev")
            self._repo.references.create_branch(name, "main")
            self._held[name] = dict(self._held["main"])

    def _merge(self) -> None:
        """Merge the oldest branch, and mostly drop it, so that only the merge has its commits.

        Always into the default branch: after merges in both directions, finding a merge base takes
        a walk through the whole history.
        """
        source = next((name for name in self._held if name != "main"), None)
        if source is None:
            return
        try:
            self._repo.merge(source, "main", default=MergeBehavior.FORCE)
        except BadRequest:  # Both renamed the same content.
            del self._held[source]
            return
        entries = self._repo.contents.entries("main", with_content=True)
        self._held["main"] = {e.key: e.content for e in entries if e.content is not None}
        held = self._held.pop(source)
        if self._random.random() < 0.2:
            self._held[source] = held  # As the youngest one.
        elif self._random.random() < 0.8:
            self._repo.references.delete(source)

    def _tag(self) -> None:
        branch = self._random.choice(list(self._held))
        self._repo.references.create_tag(self._new_name("v"), branch)

    def _new_name(self, kind: str) -> str:
        self._named += 1
        return f"{kind}/{self._named}"

"""A workload with everything that a catalog can store, for Nessie and Morag alike."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from morag.config import Settings
from morag.model.content import UDF, DeltaLakeTable, IcebergTable, IcebergView, Namespace
from morag.model.keys import ContentKey
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Put, Unchanged
from tests.nessie.catalogs import NOTHING

if TYPE_CHECKING:
    from morag.model.content import Content
    from morag.model.operations import Operation
    from tests.nessie.catalogs import Catalog

# Strings are ordered by UTF-16 units: the smile comes before the wide tilde, though its code point
# is the higher one.
_STRANGE_NAMES: Final = (
    "é",
    "\uff5e wide",
    "\U0001f600 smile",
    "with.dots",
    " ",
    "x" * 200,
    "日本",
)


class Sizes(Struct, frozen=True):
    """Limits at which indexes spill on either side, and the work that exceeds them."""

    theirs: Mapping[str, int]
    ours: Settings
    commits: int
    their_bulk: int
    our_bulk: int


SIZES: Final = {
    "small": Sizes(
        theirs={
            "max-incremental-index-size": 1300,
            "max-serialized-index-size": 2600,
            "max-reference-stripes-per-commit": 2,
            "parents-per-commit": 8,
        },
        ours=Settings(
            max_incremental_index_bytes=1300,
            min_index_segment_bytes=500,
            max_index_segment_bytes=2600,
            max_inlined_stripes=2,
            parents_per_commit=5,
        ),
        commits=70,
        their_bulk=40,
        our_bulk=40,
    ),
    "default": Sizes(theirs={}, ours=Settings(), commits=30, their_bulk=600, our_bulk=100),
}


class Work:
    """Creates all new keys below `namespace`, and changes keys of others, too."""

    def __init__(self, catalog: Catalog, namespace: str) -> None:
        self._catalog = catalog
        self._namespace = namespace
        self._random = Random(namespace)
        self._held: dict[ContentKey, Content] = {}

    def do(self, commits: int, bulk: int) -> None:
        """Make many small commits, so that an index grows slowly, and two of `bulk` keys."""
        self._held = self._catalog.contents("main")
        self._every_type()
        self._every_meta()
        self._renames_and_deletes()
        self._changes_of_others_keys()
        self._branches_and_tags()
        self._many_commits(commits)
        for half in ("low", "high"):
            self._commit(
                *(self._new(table(i), f"{half}_{i:04d}") for i in range(bulk)), message=half
            )
        # Two servers may agree on wrong contents, so compare with the expected ones.
        assert self._catalog.contents("main") == self._held
        self._merges_and_transplants()
        self._many_references()

    def _every_type(self) -> None:
        self._commit(self._new(Namespace.of(self._namespace)), message="the first")
        inner = Namespace(
            elements=(self._namespace, "s"),
            properties={"owner": "ann", "b": "2", "zeta": "", "a": "é"},
        )
        self._commit(self._new(inner, "s"), message="a namespace with properties")
        self._commit(
            self._new(table(0), "t0"),
            self._new(table(-7, schema_id=0, sort_order_id=0), "a"),
            self._new(view(4), "v"),
            message="three, not in key order",
        )
        self._commit(self._new(delta(4), "d"), message="delta")
        self._commit(self._new(DeltaLakeTable(), "d0"), message="empty delta")
        self._commit(self._new(udf(1), "u"), message="function")
        old_udf = UDF(sql_text="select 1", dialect="spark")
        self._commit(self._new(old_udf, "u2"), message="function of old")
        sql = IcebergView(
            metadata_location="m", version_id=0, schema_id=0, sql_text="select", dialect="hive"
        )
        self._commit(self._new(sql, "v2"), message="view with its text")
        self._commit(
            self._new(table(2**62), "big"), self._new(table(-(2**63)), "small"), message="numbers"
        )
        self._commit(
            *(self._new(table(i), name) for i, name in enumerate(_STRANGE_NAMES)),
            message="many\nlines, ü\U0001f600 and \x07",
        )

    def _every_meta(self) -> None:
        self._commit(
            self._put(table(1), "t0"),
            message="",
            authors=("Ann <ann@x.org>", "Bob <bob@x.org>"),
            signed_off_by=("Sig <s@x.org>", "Sig2 <s2@x.org>"),
            author_time="2024-02-29T12:34:56.789123Z",
            properties={"Key-One": ("v1", "v2"), "alpha": ("",), "zz.top": ("y",), "Äöü": ("ü",)},
        )
        # The order of headers changes with their number.
        for count in (1, 2, 7, 8, 9, 10, 22):
            self._commit(
                self._put(table(count), "t0"),
                message=f"{count} properties",
                properties={f"P{self._random.randrange(10**6)}": (str(i),) for i in range(count)},
                signed_off_by=("S <s@x>",) if count % 2 else (),
            )

    def _renames_and_deletes(self) -> None:
        self._commit(self._put(table(99), "t0"), message="update", authors=("Solo <solo@x.org>",))
        self._commit(*self._rename("a", "renamed"), message="rename")
        self._commit(self._drop("d"), message="delete")
        self._commit(self._new(delta(5), "d"), message="again, with a new id")
        self._commit(self._drop("v"), self._new(view(40), "v"), message="again in one commit")
        self._commit(
            self._drop("v2"),
            self._drop("d0"),
            self._new(table(1), "n1"),
            self._new(udf(3), "n0"),
            self._new(view(3), "m0"),
            *self._rename("u2", "another"),
            message="many, out of order",
        )
        self._commit(
            Unchanged(self._key("t0")), self._put(table(3), "n1"), message="with one unchanged"
        )
        self._commit(Unchanged(self._key("t0")), message="nothing but unchanged")

    def _changes_of_others_keys(self) -> None:
        """Update, delete, rename and recreate a few tables that others created."""
        tables = [
            key
            for key, content in self._held.items()
            if key.elements[0] != self._namespace and isinstance(content, IcebergTable)
        ]
        chosen = self._random.sample(tables, min(40, len(tables)))
        for i, key in enumerate(chosen):
            held = self._held[key]
            assert isinstance(held, IcebergTable)
            steps: list[list[Operation]] = [
                [Put(key, replace(held, snapshot_id=held.snapshot_id // 2 + 1))],
                [Delete(key)],
                [Delete(key), Put(ContentKey.of(self._namespace, f"taken{i}"), held)],
                [Delete(key), Put(key, replace(held, id=None))],
            ]
            self._commit(*steps[i % len(steps)], message=f"on {key}")

    def _branches_and_tags(self) -> None:
        catalog, head = self._catalog, self._catalog.head("main")
        for branch in ("dev", "fix", "gone"):
            catalog.create("BRANCH", f"{self._namespace}-{branch}", head)
        catalog.create("TAG", f"rel/{self._namespace}", head)
        catalog.create("BRANCH", f"{self._namespace}/from-nothing", NOTHING)
        for i in range(4):
            self._commit_on("dev", f"dev{i}", i)
            self._commit_on("fix", f"fix{i}", i)
        self._commit_on("gone", "gone", 0)
        catalog.delete(f"{self._namespace}-gone")
        catalog.commit(
            f"{self._namespace}/from-nothing",
            [Put(ContentKey.of(self._namespace), Namespace.of(self._namespace))],
            CommitMeta(message="another root"),
        )

    def _many_commits(self, count: int) -> None:
        names = ("alpha", "beta", "gamma", "delta", "eps", "zeta")
        for i in range(count):
            name = f"{names[i % 6]}_{self._random.randrange(count):03d}"
            if self._key(name) not in self._held:
                operation: Operation = self._new(table(i), name)
            elif self._random.random() < 0.5:
                operation = self._drop(name)
            else:
                operation = self._put(table(i), name)
            self._commit(operation, message=f"{self._namespace} {i}")

    def _merges_and_transplants(self) -> None:
        catalog, namespace = self._catalog, self._namespace
        catalog.merge(f"{namespace}-dev", "main")
        self._commit_on("dev", "later", 1)
        meta = CommitMeta(
            message="by hand", authors=("M <m@x.org>", "N"), properties={"p": ("1",), "q": ("",)}
        )
        catalog.merge(f"{namespace}-dev", "main", meta)
        fixes = catalog.hashes(f"{namespace}-fix")[:4][::-1]
        catalog.transplant(f"{namespace}-fix", fixes[:1], "main")
        catalog.transplant(f"{namespace}-fix", fixes[1:], "main")
        catalog.merge("main", f"{namespace}-fix")
        self._held = catalog.contents("main")
        self._commit(self._put(table(5), "later"), message="on what was merged")

    def _many_references(self) -> None:
        """Create so many references that their index spills out of its commit."""
        catalog, hashes = self._catalog, self._catalog.hashes("main")
        for i in range(16):
            name = f"{self._namespace}/branch-{i:02d}"
            catalog.create("BRANCH", name, hashes[i % 3])
            if i % 3 == 0:
                catalog.assign(name, hashes[5])
            if i % 4 == 1:
                catalog.delete(name)
        for tag in ("v1", "v2"):
            catalog.create("TAG", f"{self._namespace}-{tag}", hashes[0])
        catalog.delete(f"{self._namespace}-v2")
        catalog.create("TAG", f"{self._namespace}-v2", hashes[1])
        catalog.assign(f"{self._namespace}-v1", hashes[2])

    def _commit_on(self, branch: str, name: str, number: int) -> None:
        self._catalog.commit(
            f"{self._namespace}-{branch}",
            [Put(self._key(name), table(number))],
            CommitMeta(message=f"{branch} {number}", authors=(f"A{number} <a@x.org>",)),
        )

    def _key(self, *name: str) -> ContentKey:
        return ContentKey.of(self._namespace, *name)

    def _new(self, content: Content, *name: str) -> Put:
        return Put(self._key(*name), content)

    def _put(self, content: Content, name: str) -> Put:
        return Put(self._key(name), replace(content, id=self._held[self._key(name)].id))

    def _drop(self, name: str) -> Delete:
        return Delete(self._key(name))

    def _rename(self, name: str, to: str) -> tuple[Operation, Operation]:
        return self._drop(name), Put(self._key(to), self._held[self._key(name)])

    def _commit(
        self,
        *operations: Operation,
        message: str,
        authors: tuple[str, ...] = (),
        author_time: str | None = None,
        signed_off_by: tuple[str, ...] = (),
        properties: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        meta = CommitMeta(
            message=message,
            authors=authors,
            author_time=author_time,
            signed_off_by=signed_off_by,
            properties=properties or {},
        )
        made = self._catalog.commit("main", operations, meta)
        for operation in operations:
            if isinstance(operation, Delete):
                del self._held[operation.key]
        for operation in operations:
            if isinstance(operation, Put):
                id = made.get(operation.key, operation.content.id)
                self._held[operation.key] = replace(operation.content, id=id)


def table(n: int, schema_id: int = 1, sort_order_id: int = 2) -> IcebergTable:
    return IcebergTable(
        metadata_location=f"s3://b/m{n}.json",
        snapshot_id=n,
        schema_id=schema_id,
        spec_id=0,
        sort_order_id=sort_order_id,
    )


def view(n: int) -> IcebergView:
    return IcebergView(metadata_location=f"s3://b/v{n}.json", version_id=n, schema_id=3)


def udf(n: int) -> UDF:
    return UDF(metadata_location=f"s3://b/u{n}.json", version_id=f"v{n}", signature_id=f"s{n}")


def delta(n: int) -> DeltaLakeTable:
    return DeltaLakeTable(
        last_checkpoint=f"cp{n}",
        checkpoint_location_history=tuple(f"c{i}" for i in range(n % 3)),
        metadata_location_history=tuple(f"d{i}" for i in range(1 + n % 4)),
    )

"""Entries, diffs, commits and references for the tests of filters."""

from __future__ import annotations

from morag.model.content import Content, IcebergTable, IcebergView, Namespace
from morag.model.keys import ContentKey
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Put
from morag.model.references import Reference, ReferenceMetadata
from morag.model.results import Diff, Entry, LogEntry
from morag.versions.encoding import Encoding

NAMESPACES = ["ns1", "ns1.sub", "ns2"]
TABLES = ["ns1.sub.t3", "ns1.t1", "top"]
VIEWS = ["ns2.v1"]
EVERYTHING = [*NAMESPACES, *TABLES, *VIEWS]
AS_TEXT: Encoding[Content] = Encoding("text", lambda items: [repr(it).encode() for it in items])


def key(name: str) -> ContentKey:
    return ContentKey(tuple(name.split(".")))


def entry(*elements: str, type: str = "ICEBERG_TABLE") -> Entry:
    return Entry(ContentKey(elements), type, "some-id")


ENTRIES = {
    **{name: Entry(key(name), "NAMESPACE", "") for name in NAMESPACES},
    **{name: Entry(key(name), "ICEBERG_TABLE", "") for name in TABLES},
    **{name: Entry(key(name), "ICEBERG_VIEW", "") for name in VIEWS},
}


def diff(name: str) -> Diff:
    return Diff(key(name), None, Namespace.of(*name.split(".")))


def put_table(name: str, id: str | None = "table-id") -> Put:
    table = IcebergTable(
        id=id, metadata_location="file", snapshot_id=1, schema_id=1, spec_id=1, sort_order_id=1
    )
    return Put(key(name), table)


def put_view(name: str) -> Put:
    return Put(key(name), IcebergView(id="v", metadata_location="file", version_id=1, schema_id=1))


def commit(
    message: str,
    *operations: Put | Delete,
    authors: tuple[str, ...] = ("",),
    time: str = "2024-05-01T12:00:00Z",
    properties: dict[str, tuple[str, ...]] | None = None,
    signed_off_by: tuple[str, ...] = (),
) -> LogEntry:
    meta = CommitMeta(
        message=message,
        authors=authors,
        author_time="2024-04-30T23:59:59.999999999Z",
        signed_off_by=signed_off_by,
        properties=properties or {},
        hash=f"hash of {message}",
        committer="",
        commit_time=time,
        parents=("parent",),
    )
    return LogEntry(meta, "parent", operations or None)


COMMITS = [
    commit(
        "first",
        Put(key("ns1"), Namespace.of("ns1")),
        put_table("ns1.t1"),
        put_table("ns2.t2"),
        authors=("alice",),
        properties={"job": ("j1",)},
    ),
    commit("second", put_table("ns1.sub.t3"), put_view("ns2.v1"), authors=("bob",)),
    commit(
        "third",
        put_table("top"),
        Delete(key("ns1.t2")),
        authors=("alice", "carol"),
        signed_off_by=("dave", "erin"),
    ),
    commit("fourth", Delete(key("top")), properties={"job": ("j2", "j3")}),
]

METADATA = ReferenceMetadata(
    head=COMMITS[2].meta, total_commits=3, ahead=2, behind=1, common_ancestor="hash of first"
)
MAIN = Reference("BRANCH", "main", "hash of main")
RELEASE = Reference("TAG", "release", "hash of third")

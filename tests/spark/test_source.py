"""The tables of a catalog have the same rows through a server and from its store."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import morag
from morag import ContentKey, Delete, Put
from morag.backend.urls import open_backend
from morag.model.content import Content
from morag.persist.persist import ObjectMissing
from tests.spark.in_process_read import Read
from tests.spark.sample_catalog import MANY, filled, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from morag.client import Client


Options = dict[str, str]
FOUR_PARTS = {"partitions": "4"}


@pytest.fixture(scope="module", params=["rocksdb", "sqlite"])
def catalog(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Client, str, str]]:
    """A client of a running server, the address of the server, and its store."""
    directory = tmp_path_factory.mktemp("catalog")
    store = f"{request.param}:{directory / 'store'}"
    with filled(directory, store) as (served, client):
        yield client, served.url, store


@pytest.fixture(scope="module")
def client(catalog: tuple[Client, str, str]) -> Client:
    return catalog[0]


@pytest.fixture(params=["uri", "store"])
def options(request: pytest.FixtureRequest, catalog: tuple[Client, str, str]) -> Options:
    _, uri, store = catalog
    return {"uri": uri} if request.param == "uri" else {"store": store}


def test_entries_are_all_keys_with_their_content(options: Options, client: Client) -> None:
    rows = list(Read(options | {"table": "entries"}))
    listed = list(client.contents.entries("main", with_content=True))
    assert [row["key"] for row in rows] == [list(entry.key.elements) for entry in listed]
    assert [row["content_type"] for row in rows] == [entry.type for entry in listed]
    assert [row["content_id"] for row in rows] == [entry.content_id for entry in listed]
    assert [_content(row["content"]) for row in rows] == [entry.content for entry in listed]
    by_key = {tuple(row["key"]): row for row in rows}
    view, top = by_key["a", "view"], by_key["top",]
    assert (view["version_id"], view["schema_id"], view["snapshot_id"]) == (7, 1, None)
    assert (top["metadata_location"], top["snapshot_id"]) == ("file:///lake/-1.json", -1 << 40)
    assert (top["schema_id"], top["spec_id"], top["sort_order_id"]) == (1, 2, 3)
    assert by_key["a", "delta"]["metadata_location"] is None


def test_the_text_of_a_namespace_is_unambiguous(options: Options) -> None:
    columns = ["namespace", "key", "name"]
    rows = {tuple(r["key"]): (r["namespace"], r["name"]) for r in Read(options, columns)}
    assert rows["top",] == ("", "top")
    assert rows["a", "b", "t"] == ("a.b", "t")
    assert rows["we.ird", "t"] == (".we*.ird", "t")
    assert rows["we.ird", "*", "d.ot"] == (".we*.ird.**", "d.ot")
    assert rows["grün", "Ω😀"] == ("grün", "Ω😀")


@pytest.mark.parametrize("name", ["entries", "diff"])
def test_key_ranges_are_even_and_disjoint(options: Options, name: str) -> None:
    extra = {"table": name, "from": "main~2"} if name == "diff" else {"table": name}
    read = Read(options | extra | FOUR_PARTS, ["key"])
    parts = [[tuple(row["key"]) for row in read.rows(part)] for part in read.parts]
    assert len(parts) == 4
    assert min(map(len, parts)) > MANY // 8
    assert max(Counter(key for part in parts for key in part).values()) == 1
    whole = Read(options | extra | {"partitions": "1"}, ["key"])
    assert [key for part in parts for key in part] == [tuple(row["key"]) for row in whole]


@pytest.mark.parametrize("ref", ["dev", "v1", "main~1", "HASH", "main@HASH"])
def test_a_ref_is_a_branch_a_tag_or_a_commit(options: Options, client: Client, ref: str) -> None:
    hashes = list(client.history.hashes("main"))
    at = ref.replace("HASH", hashes[-1]) if "@" in ref else ref.replace("HASH", f"@{hashes[1]}")
    rows = [ContentKey(tuple(row["key"])) for row in Read(options | {"ref": at}, ["key"])]
    assert rows == list(client.contents.keys(at))


def test_all_tasks_read_the_commit_that_was_planned(options: Options, client: Client) -> None:
    client.references.create_branch("moving", "main")
    try:
        entries = Read(options | {"ref": "moving"} | FOUR_PARTS, ["key"])
        diff = Read(options | {"table": "diff", "from": "main", "to": "moving"}, ["key"])
        log = Read(options | {"table": "log", "ref": "moving"}, ["message"])
        client.commit("moving", [Put(ContentKey.of("zz"), table(1))], "too late")
        assert ["zz"] not in [row["key"] for row in entries]
        assert list(diff) == []
        assert "too late" not in [row["message"] for row in log]
    finally:
        client.references.delete("moving")


def test_a_store_shows_the_latest_commit_of_its_server(
    catalog: tuple[Client, str, str],
) -> None:
    client, _, store = catalog
    client.references.create_branch("fresh", "main")
    try:
        for number in range(3):
            key = ContentKey.of("a", f"fresh{number}")
            client.commit("fresh", [Put(key, table(number))], "now")
            read = Read({"store": store, "ref": "fresh"}, ["key", "snapshot_id"])
            assert {"key": list(key.elements), "snapshot_id": number << 40} in list(read)
    finally:
        client.references.delete("fresh")


def test_no_content_is_read_if_no_column_needs_it(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'catalog.db'}"
    with morag.open(url) as repo:
        repo.commit("main", [Put(ContentKey.of("t"), table(1))], "a table")
        value = next(iter(repo.contents.columns("main", with_content=True)))
        assert value.contents is not None
    backend = open_backend(url)
    backend.delete_rows("", [row.id for row in backend.scan_rows("", frozenset({"v"}))])
    backend.close()
    cheap = ["key", "namespace", "name", "content_type", "content_id"]
    assert [row["key"] for row in Read({"store": url}, cheap)] == [["t"]]
    with pytest.raises(ObjectMissing):
        list(Read({"store": url}, [*cheap, "snapshot_id"]))


def test_the_log_has_all_commits(options: Options, client: Client) -> None:
    rows = list(Read(options | {"table": "log", "ref": "dev"}))
    assert [row["hash"] for row in rows] == list(client.history.hashes("dev"))
    assert [row["message"] for row in rows] == ["on dev", "odd ones", "many tables", "spaces"]
    first = rows[-1]
    assert first["authors"] == ["ann", "bob"] and first["signed_off_by"] == ["zoe"]
    assert dict(first["properties"]) == {"k": ["v1", "v2"], "l": ["w"]}
    assert first["author_time"] == datetime(2024, 2, 29, 12, 0, 0, 123456, UTC)
    assert rows[0]["parents"] == [rows[1]["hash"]]
    assert rows[0]["commit_time"] >= rows[1]["commit_time"]


@pytest.mark.parametrize(("requested", "ranges"), [(1, 1), (2, 2), (3, 2), (4, 4), (9, 4)])
def test_commit_ranges_are_disjoint(
    options: Options, client: Client, requested: int, ranges: int
) -> None:
    """Four commits are cut into ranges of equal size; only the last may be smaller."""
    read = Read(options | {"table": "log", "ref": "dev", "partitions": str(requested)}, ["hash"])
    assert len(read.parts) == ranges
    assert [row["hash"] for row in read] == list(client.history.hashes("dev"))


def test_a_log_has_a_row_for_each_operation(options: Options, client: Client) -> None:
    requested = {"table": "log", "ref": "dev", "operations": "true"}
    rows = list(Read(options | requested))
    expected = [
        (entry.meta.hash, operation)
        for entry in client.history.log("dev", with_operations=True)
        for operation in entry.operations or ()
    ]
    assert [(row["hash"], _operation(row)) for row in rows] == expected
    assert len(rows) > MANY


def test_a_diff_has_the_contents_of_both_sides(options: Options) -> None:
    requested = {"table": "diff", "from": "main", "to": "dev"}
    rows = {tuple(row["key"]): row for row in Read(options | requested)}
    assert {key: row["change"] for key, row in rows.items()} == {
        ("a", "b", "t"): "CHANGED",
        ("a", "new"): "ADDED",
        ("many", "t00007"): "REMOVED",
    }
    changed = rows["a", "b", "t"]
    assert (changed["from_snapshot_id"], changed["to_snapshot_id"]) == (1 << 40, 99 << 40)
    assert changed["from_content_id"] == changed["to_content_id"]
    assert rows["a", "new"]["from_content_type"] is None
    assert rows["many", "t00007"]["to_content"] is None
    assert rows["many", "t00007"]["from_content_type"] == "ICEBERG_TABLE"


def test_references_have_their_heads_and_metadata(options: Options, client: Client) -> None:
    rows = list(Read(options | {"table": "references"}))
    assert [(row["type"], row["name"]) for row in rows] == [
        ("BRANCH", "dev"),
        ("BRANCH", "main"),
        ("TAG", "v1"),
    ]
    dev, main = rows[0], rows[1]
    assert dev["hash"] == client.references.get("dev").hash
    assert (dev["message"], dev["total_commits"]) == ("on dev", 4)
    assert (dev["ahead"], dev["behind"], dev["common_ancestor"]) == (1, 0, main["hash"])
    assert main["ahead"] is None
    cheap = list(Read(options | {"table": "references"}, ["name", "hash"]))
    assert cheap == [{"name": row["name"], "hash": row["hash"]} for row in rows]


def test_the_ref_log_has_all_moves(options: Options) -> None:
    rows = list(Read(options | {"table": "reflog"}))
    moves = [(row["operation"], row["name"]) for row in rows if row["name"] in ("dev", "gone")]
    assert moves == [
        ("DELETE_REFERENCE", "gone"),
        ("CREATE_REFERENCE", "gone"),
        ("COMMIT", "dev"),
        ("CREATE_REFERENCE", "dev"),
    ]
    assert all(one["time"] >= other["time"] for one, other in pairwise(rows))


def test_all_stored_objects_are_read(catalog: tuple[Client, str, str]) -> None:
    client, _, store = catalog
    read = Read({"store": store, "table": "objects"} | FOUR_PARTS)
    parts = [read.rows(part) for part in read.parts]
    assert len(parts) == 4 and all(parts)
    ids = Counter(row["id"] for part in parts for row in part)
    assert max(ids.values()) == 1
    assert set(client.history.hashes("dev")) <= ids.keys()
    kinds = Counter(row["kind"] for part in parts for row in part)
    assert kinds["COMMIT"] >= 4 and kinds["VALUE"] >= MANY
    assert all(row["size_bytes"] == len(row["data"]) > 0 for part in parts for row in part)


def test_an_empty_catalog_has_no_rows(tmp_path: Path) -> None:
    url = f"rocksdb:{tmp_path / 'empty'}"
    morag.open(url).close()
    for name in ("entries", "log"):
        assert list(Read({"store": url, "table": name})) == []
    assert list(Read({"store": url, "table": "diff", "from": "main"})) == []
    assert [row["total_commits"] for row in Read({"store": url, "table": "references"})] == [0]


def _content(text: str) -> Content:
    content: Content = msgspec.json.decode(text, type=Content)
    return content


def _operation(row: dict[str, Any]) -> Put | Delete:
    key = ContentKey(tuple(row["key"]))
    return Delete(key) if row["operation"] == "DELETE" else Put(key, _content(row["content"]))

"""The tools of `morag generate` list what a catalog has, and change many keys."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from morag.cli.main import main
from morag.client import Client
from morag.model.content import IcebergTable, Namespace
from morag.model.keys import ContentKey
from morag.model.operations import Put
from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Tool = Callable[..., list[str]]

TABLE = IcebergTable(
    metadata_location="generated:///x", snapshot_id=1, schema_id=1, spec_id=1, sort_order_id=1
)


@pytest.fixture
def tool(server: Served, capsys: pytest.CaptureFixture[str]) -> Tool:
    def run(name: str, *flags: str, code: int = 0) -> list[str]:
        assert main(["generate", name, "-u", f"{server.url}/api/v1", *flags]) == code
        return capsys.readouterr().out.splitlines()

    return run


@pytest.fixture
def branch(client: Client) -> str:
    """A branch with the namespaces a and a.b, and the tables a.b.0 to a.b.4 and top."""
    name = f"tools-{uuid4().hex}"
    client.references.create_branch(name, None)
    tables = [ContentKey.of("a", "b", str(number)) for number in range(5)]
    puts = [Put(key, Namespace(elements=key.elements)) for key in _keys("a", "a.b")]
    client.commit(name, [*puts, *(Put(key, TABLE) for key in tables)], "tables")
    client.commit(name, [Put(ContentKey.of("top"), TABLE)], "one more")
    return name


def _keys(*texts: str) -> Iterator[ContentKey]:
    return (ContentKey(tuple(text.split("."))) for text in texts)


def names(client: Client, branch: str) -> list[str]:
    return [str(key) for key in client.contents.keys(branch)]


def test_entries_are_listed(tool: Tool, branch: str) -> None:
    lines = [line.split("\t") for line in tool("entries", "-r", branch)]
    listed = [(type, key) for type, key, _ in lines]
    tables = [("ICEBERG_TABLE", f"a.b.{number}") for number in range(5)]
    assert listed == [
        ("NAMESPACE", "a"),
        ("NAMESPACE", "a.b"),
        *tables,
        ("ICEBERG_TABLE", "top"),
    ]
    (line,) = tool("entries", "-r", branch, "-L", "1", "--with-content", "-H", "~1")
    assert json.loads(line.split("\t")[3])["elements"] == ["a"]
    assert len(tool("entries", "-r", branch, "-H", "~1")) == 7


def test_commits_are_listed_with_operations_if_verbose(tool: Tool, branch: str) -> None:
    assert [line.split("\t")[3] for line in tool("commits", "-r", branch)] == ["one more", "tables"]
    lines = tool("commits", "-r", branch, "-v", "--limit", "1")
    assert lines[1:] == ["  PUT top"]


def test_references_are_listed(tool: Tool, branch: str, client: Client) -> None:
    found = [line.split("\t") for line in tool("refs")]
    assert ["BRANCH", branch, client.references.get(branch).hash] in found
    assert len(tool("refs", "-L", "2")) == 2


def test_a_content_is_shown(tool: Tool, branch: str) -> None:
    shown = json.loads("\n".join(tool("content", "-r", branch, "-k", "a", "-k", "b", "-k", "3")))
    assert (shown["type"], shown["metadataLocation"]) == ("ICEBERG_TABLE", "generated:///x")
    tool("content", "-r", branch, "-k", "nothing", code=1)


def test_contents_are_refreshed_in_batches(tool: Tool, branch: str, client: Client) -> None:
    before = client.contents.get_all(branch, list(client.contents.keys(branch)))
    (line,) = tool("content-refresh", "-r", branch, "-B", "3", "--author", "Ada", "-m", "again")
    assert line.startswith(f"refreshed 8 keys on {branch} ")
    assert client.contents.get_all(branch, list(before)) == before
    log = list(client.history.log(branch))
    assert [entry.meta.message for entry in log[:-2]] == ["again"] * 3
    assert log[0].meta.authors == ("Ada",)


def test_one_key_or_all_below_it_are_deleted(tool: Tool, branch: str, client: Client) -> None:
    tool("delete", "-r", branch, "-k", "top")
    assert "top" not in names(client, branch)
    tool("delete", "-r", branch, "-k", "a", "-k", "b", "-R", "-B", "2")
    assert names(client, branch) == ["a"]
    tool("delete", "-r", branch)
    assert names(client, branch) == []


def test_nothing_is_deleted_unless_keys_or_a_branch_are_named(tool: Tool, client: Client) -> None:
    before = client.references.get("main").hash
    tool("delete", code=2)
    assert client.references.get("main").hash == before


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ((), "a.b.1\na.b.2\n\n"),
        (("-S", "/"), "a/b/1\na/b/2\n"),
        (
            ("-F", "CONTENT_INFO_JSON"),
            json.dumps(
                [{"key": {"elements": ["a", "b", str(number)]}, "other": 1} for number in (1, 2)]
            ),
        ),
    ],
)
def test_keys_come_from_a_file(
    tool: Tool, branch: str, client: Client, tmp_path: Path, flags: tuple[str, ...], text: str
) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    tool("delete", "-r", branch, "-f", str(path), *flags)
    assert names(client, branch) == ["a", "a.b", "a.b.0", "a.b.3", "a.b.4", "top"]


def test_a_report_names_the_branch_and_its_tags_are_skipped(
    tool: Tool, branch: str, client: Client, tmp_path: Path
) -> None:
    client.references.create_tag(f"{branch}-tag", branch)
    path = tmp_path / "report.json"
    key = {"elements": ["top"]}
    report = [{"key": key, "reference": name} for name in (f"{branch}-tag", branch)]
    path.write_text(json.dumps(report))
    assert len(tool("delete", "-f", str(path), "-F", "content_info_json")) == 1
    assert "top" not in names(client, branch)


def test_a_content_is_copied_as_new_content(tool: Tool, branch: str, client: Client) -> None:
    flags = ("-r", branch, "-k", "top", "-t", "a", "-t", "copy-%d", "-n", "3")
    assert tool("copy", *flags)[0].startswith("copied 3 times")
    copies = client.contents.get_all(branch, list(_keys("a.copy-0", "a.copy-1", "a.copy-2", "top")))
    assert len({content.id for content in copies.values()}) == 4
    assert len({content.metadata_location for content in copies.values()}) == 1  # type: ignore[union-attr]
    assert main(["generate", "copy", "-k", "top", "-t", "same", "-n", "2"]) == 2


def test_missing_namespaces_are_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Served(tmp_path, "--no-namespace-validation") as server, Client(server.url) as client:
        client.commit("main", [Put(key, TABLE) for key in _keys("a.b.c", "x.y")], "tables")
        command = ["generate", "create-missing-namespaces", "-u", server.url]
        assert main([*command, "-r", "main"]) == 0
        assert "3 namespaces created" in capsys.readouterr().out
        assert names(client, "main") == ["a", "a.b", "a.b.c", "x", "x.y"]
        assert main(command) == 0
        assert "1 branches processed, 0 failed, 0 namespaces" in capsys.readouterr().out


def test_flags_before_the_tool_count_as_well(
    server: Served, branch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "-u", server.url, "entries", "-r", branch, "-L", "1"]) == 0
    assert capsys.readouterr().out.startswith("NAMESPACE\ta\t")

"""`morag admin info`, `check` and `erase` on stores in files."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from msgspec import json

import morag
from morag import Settings
from morag.backend.base import RefSwap
from morag.backend.urls import open_backend
from morag.cli.main import main
from tests.maintenance.damaged_store import fill_repository
from tests.rules.operations import create
from tests.safety.full_repository import SMALL

if TYPE_CHECKING:
    from pathlib import Path

    from morag.backend.base import ObjId, Row


@pytest.fixture(params=["rocksdb", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url = f"{request.param}:{tmp_path / 'store'}"
    with morag.open(url, SMALL) as repo:
        fill_repository(repo)
    return url


def admin(*arguments: str) -> int:
    return main(["admin", *arguments])


def damage(url: str, kind: str) -> Row:
    """Delete an object of this kind."""
    backend = open_backend(url)
    row = next(row for row in backend.scan_rows("") if row.kind == kind)
    backend.delete_rows("", [row.id])
    backend.close()
    return row


# info


def test_info_shows_the_repository(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with morag.open(url, read_only=True) as repo:
        head, references = repo.references.get("main").hash, len(list(repo.references.list()))
        commits, created = len(list(repo.history.log("main"))), repo.describe()
    assert admin("info", "--store", url, "--json") == 0
    shown = json.decode(capsys.readouterr().out)
    assert (shown["head"], shown["commits"], shown["references"]) == (head, commits, references)
    assert shown["created"] == created.repository_created_time
    assert shown["store_type"] == url.partition(":")[0]
    assert admin("info", "--store", url) == 0
    assert f"  head:             {head}\n" in capsys.readouterr().out


def test_info_works_while_a_server_has_the_store(url: str) -> None:
    with morag.open(url):
        assert admin("info", "--store", url) == 0


@pytest.mark.parametrize("command", ["info", "check"])
def test_a_store_without_the_repository_has_an_exit_code_of_its_own(
    url: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert admin(command, "--store", url, "--repository-id", "another") == 4
    assert "holds no such repository" in capsys.readouterr().err


def test_a_store_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    for command in ("info", "check", "erase", "cut-history"):
        rest = {"erase": ["--confirm", "none"], "cut-history": ["ab" * 32, "--no-dry-run"]}
        assert (
            admin(command, *rest.get(command, []), "--store", f"rocksdb:{tmp_path / 'none'}") == 1
        )
    assert not (tmp_path / "none").exists()


def test_passwords_in_store_urls_are_masked(capsys: pytest.CaptureFixture[str]) -> None:
    url = "postgresql://ann:secret@127.0.0.1:1/lake"
    assert admin("erase", "--store", url) == 1
    output = capsys.readouterr()
    assert "--confirm lake" in output.err
    assert "secret" not in output.out + output.err


# check


def test_an_intact_store_has_no_findings(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with morag.open(url):  # A server may go on.
        assert admin("check", "--store", url) == 0
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.endswith("7 references: no problems\n")


def test_findings_are_printed_and_change_the_exit_code(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    value = damage(url, "v")
    assert admin("check", "--store", url, "--quiet") == 3
    line = capsys.readouterr().out
    assert line.startswith(f"VALUE {value.id.hex()}: the object is missing (value of ")
    assert admin("check", "--store", url, "--quiet", "--json") == 3
    shown = json.decode(capsys.readouterr().out)
    assert shown.pop("needed_by") in line
    assert shown == {
        "id": value.id.hex(),
        "kind": "VALUE",
        "problem": "the object is missing",
        "role": "value",
    }


def test_one_commit_can_be_checked(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = values(url)
    with morag.open(url, SMALL) as repo:
        create(repo, "main", extra="extra")
        hash = repo.references.get("main").hash
    (value,) = values(url) - before
    for spec in ("main", hash, "main~1"):
        assert admin("check", spec, "--store", url) == 0
    backend = open_backend(url)
    backend.delete_rows("", [value])
    backend.close()
    capsys.readouterr()
    assert [admin("check", s, "--store", url, "--quiet") for s in ("main", hash)] == [3, 3]
    assert capsys.readouterr().out == 2 * f"{value.hex()}: the object is missing\n"
    assert admin("check", "main~1", "--store", url) == 0


def values(url: str) -> set[ObjId]:
    backend = open_backend(url, read_only=True)
    try:
        return {row.id for row in backend.scan_rows("", frozenset("v"))}
    finally:
        backend.close()


def test_a_repository_whose_description_is_lost_is_still_checked(url: str) -> None:
    damage(url, "s")
    assert admin("check", "--store", url) == 3


# erase


def test_erase_tells_the_name_to_confirm_and_changes_nothing(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in ([], ["--confirm", "lake"]):
        assert admin("erase", "--store", url, *wrong) == 1
        assert "--confirm store" in capsys.readouterr().err
    assert admin("check", "--store", url, "--quiet") == 0
    assert admin("info", "--store", url, "--quiet") == 0


def test_erase_removes_the_repository_and_no_other(url: str) -> None:
    with morag.open(url, Settings(repository_id="other")) as repo:
        create(repo, "main", a="a")
    assert admin("erase", "--store", url, "--confirm", "store") == 0
    assert admin("info", "--store", url) == 4
    assert admin("check", "--store", url, "--repository-id", "other", "--quiet") == 0
    assert admin("erase", "--store", url, "--repository-id", "other", "--confirm", "other") == 0
    backend = open_backend(url)
    assert not list(backend.scan_rows("")) and not list(backend.scan_rows("other"))
    backend.close()


def test_an_interrupted_erase_can_be_completed(url: str) -> None:
    with closing(open_backend(url)) as backend:  # An erase removes the refs first.
        for ref in backend.read_refs("", ["int/refs", "int/repo"]).values():
            assert backend.swap_ref("", RefSwap(ref.name, ref, None))
    assert admin("info", "--store", url) == 4
    assert admin("erase", "--store", url, "--confirm", "store") == 0
    with closing(open_backend(url)) as backend:
        assert not list(backend.scan_rows(""))
    assert admin("erase", "--store", url, "--confirm", "store") == 4


def test_erase_can_create_a_new_repository(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert admin("erase", "--store", url, "--confirm", "store", "--recreate") == 0
    assert "the empty branch 'main'" in capsys.readouterr().out
    with morag.open(url, read_only=True) as repo:
        assert [ref.name for ref in repo.references.list()] == ["main"]
        assert list(repo.contents.keys("main")) == []


def test_a_store_that_a_server_has_is_not_changed(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with morag.open(url) as repo:
        head = repo.references.get("main").hash
        assert admin("erase", "--store", url, "--confirm", "store") == 1
        assert admin("cut-history", head, "--store", url, "--no-dry-run") == 1
        assert " open" in capsys.readouterr().err
        assert repo.references.get("main").hash == head

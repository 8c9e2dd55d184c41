"""`morag export` and `morag import`: flags, results and exit codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import json

import morag
from morag.cli.main import main
from tests.rules.operations import put

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A small store in the directory from which the commands are run."""
    monkeypatch.chdir(tmp_path)
    for name in ("MORAG_STORE", "MORAG_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    url = "sqlite:store"
    with morag.open(url) as repo:
        repo.commit("main", [put("a", "x")], "one")
        repo.commit("main", [put("b", "x")], "two")
        repo.references.create_branch("dev", "main")
        repo.references.create_tag("v1", "main")
    return url


def test_counts_are_printed(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "files", "--store", store, "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("exported to files\n  3 references\n  2 commits (")
    assert err == ""
    assert main(["import", "files", "--store", "sqlite:copy", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("imported from files\n  3 references\n  2 commits (")
    assert err == ""


def test_results_are_printed_as_json(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "files.zip", "--store", store, "--json", "--version", "2"]) == 0
    report = json.decode(capsys.readouterr().out)
    assert report == {
        "references": 3, "commits": 2, "objects": 0, "unproven": 0, "unprovenIds": [],
    }  # fmt: skip
    assert main(["import", "files.zip", "--store", "rocksdb:copy", "--json", "--check"]) == 0
    report = json.decode(capsys.readouterr().out)
    assert (report["references"], report["commits"], report["unfit"]) == (3, 2, 0)


def test_the_store_comes_from_the_environment_and_from_the_file(
    store: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MORAG_STORE", store)
    assert main(["export", "one", "--quiet"]) == 0
    monkeypatch.delenv("MORAG_STORE")
    (tmp_path / "morag.toml").write_text('store = "sqlite:store"\n')
    assert main(["export", "two", "--quiet"]) == 0


def test_the_format_does_not_depend_on_the_name_alone(store: str, tmp_path: Path) -> None:
    assert main(["export", "x", "--store", store, "--format", "zip", "--quiet"]) == 0
    assert (tmp_path / "x").is_file()
    assert main(["import", "x", "--store", "sqlite:copy", "--quiet"]) == 0
    assert main(["export", "y.ZIP", "--store", store, "--quiet"]) == 0
    assert (tmp_path / "y.ZIP").is_file()


def test_some_references_or_the_current_contents_are_exported(store: str) -> None:
    flags = ["--refs", "main", "v*", "--max-file-bytes", "100"]
    assert main(["export", "some", "--store", store, *flags, "--quiet"]) == 0
    assert main(["import", "some", "--store", "sqlite:some-copy", "--quiet"]) == 0
    with morag.open("sqlite:some-copy") as repo:
        assert [ref.name for ref in repo.references.list()] == ["main", "v1"]
    assert main(["export", "current", "--store", store, "--current", "dev", "--quiet"]) == 0
    assert main(["import", "current", "--store", "sqlite:current-copy", "--quiet"]) == 0
    with morag.open("sqlite:current-copy") as repo:
        assert repo.default_branch == "dev"
        assert len(list(repo.history.log("dev"))) == 1


def test_a_repository_is_erased_only_if_its_name_is_confirmed(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "files", "--store", store, "--quiet"]) == 0
    imported = ["import", "files", "--store", "sqlite:copy", "--quiet"]
    assert main(imported) == 0
    assert main(imported) == 100
    assert "--erase --confirm NAME" in capsys.readouterr().err
    assert main([*imported, "--erase"]) == 2
    assert "add --confirm copy" in capsys.readouterr().err
    assert main([*imported, "--erase", "--confirm", "store"]) == 2
    with morag.open("sqlite:copy") as repo:
        repo.references.create_branch("more", "main")
    assert main([*imported, "--erase", "--confirm", "copy"]) == 0
    with morag.open("sqlite:copy") as repo:
        assert "more" not in {ref.name for ref in repo.references.list()}
    by_id = [*imported, "--repository-id", "lake"]
    assert main(by_id) == 0
    assert main([*by_id, "--erase", "--confirm", "lake"]) == 0


def test_a_store_that_is_in_use_is_not_erased(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "files", "--store", store, "--quiet"]) == 0
    with morag.open(store) as repo:
        repo.commit("main", [put("c", "x")], "three")
        flags = ["--erase", "--confirm", "store", "--quiet"]
        assert main(["import", "files", "--store", store, *flags]) == 1
        assert " open" in capsys.readouterr().err
        assert len(list(repo.history.log("main"))) == 3


def test_a_damaged_export_does_not_erase_anything(store: str, tmp_path: Path) -> None:
    assert main(["export", "files", "--store", store, "--quiet"]) == 0
    commits = tmp_path / "files" / "commits-00000001"
    commits.write_bytes(commits.read_bytes()[:-1])
    flags = ["--store", store, "--erase", "--confirm", "store", "--quiet"]
    assert main(["import", "files", *flags]) == 3
    with morag.open(store) as repo:
        assert len(list(repo.history.log("main"))) == 2


def test_a_dry_run_creates_no_store(store: str, tmp_path: Path) -> None:
    assert main(["export", "files", "--store", store, "--quiet"]) == 0
    assert main(["import", "files", "--store", "sqlite:copy", "--dry-run", "--quiet"]) == 0
    assert not (tmp_path / "copy").exists()


def test_problems_have_exit_codes(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--store", store, "--quiet"]
    assert main(["export", "files", *flags, "--repository-id", "other"]) == 4
    assert "holds no such repository" in capsys.readouterr().err
    assert main(["export", "files", *flags, "--refs", "nothing"]) == 1
    assert "No reference matches 'nothing'" in capsys.readouterr().err
    assert main(["export", "new", *flags, "--refs", "main", "--current", "main"]) == 2
    assert main(["import", "nothing", "--store", "sqlite:copy", "--quiet"]) == 3
    assert main(["import", "x", *flags, "--resume", "--erase", "--confirm", "store"]) == 2
    assert main(["import", "x", *flags, "--confirm", "store"]) == 2


@pytest.mark.parametrize("flags", [["--max-file-bytes", "0"], ["--version", "1"], ["--check", "x"]])
def test_wrong_flags_are_misuse(store: str, flags: list[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["export", "files", "--store", store, *flags])
    assert exit.value.code == 2

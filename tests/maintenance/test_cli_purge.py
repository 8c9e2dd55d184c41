"""`morag admin purge` on stores in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import json

import morag
from morag import ContentKey, Put
from morag.cli.main import main
from tests.maintenance.purge_scenario import a_table

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["rocksdb", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with an object that no reference leads to."""
    url = f"{request.param}:{tmp_path / 'store'}"
    with morag.open(url) as repo:
        for name in ("a", "b"):
            repo.commit("main", [Put(ContentKey.of(name), a_table(name))], "m")
        repo.references.create_branch("side", "main")
        repo.commit("side", [Put(ContentKey.of("c"), a_table("c"))], "m")
        repo.references.delete("side")
    return url


def test_a_purge_is_a_dry_run_unless_told(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    purge = ["admin", "purge", "--store", url, "--quiet", "--settle", "PT0S"]
    assert main(purge) == 0
    text = capsys.readouterr().out
    assert "in all" in text
    assert "written within the grace period" in text
    assert main([*purge, "--grace", "PT0S", "--json"]) == 0
    dry = json.decode(capsys.readouterr().out)
    kinds = {each["kind"]: each["rows"] for each in dry["removed"]}
    assert kinds == {"COMMIT": 1, "VALUE": 1, "UNIQUE": 1}
    assert main([*purge, "--grace", "PT0S", "--no-dry-run"]) == 0
    assert "removed:" in capsys.readouterr().out
    assert main([*purge, "--grace", "PT0S", "--json", "--no-dry-run"]) == 0
    assert json.decode(capsys.readouterr().out)["removed"] == []
    assert main(["admin", "check", "--store", url, "--quiet"]) == 0
    assert list(tmp_path.glob("morag-purge*")) == []


def test_a_store_that_is_in_use_can_only_be_looked_at(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    purge = ["admin", "purge", "--store", url, "--quiet", "--journal", str(tmp_path / "j")]
    with morag.open(url):
        assert main(purge) == 0
        assert main([*purge, "--no-dry-run"]) == 1
    assert " open" in capsys.readouterr().err
    assert main([*purge, "--no-dry-run"]) == 0


@pytest.mark.parametrize("flag", ["--grace=-PT1S", "--grace=3days", "--rate=0", "--settle=-P1D"])
def test_impossible_flags_are_misuse(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["admin", "purge", "--store", "memory:", flag])
    assert exit.value.code == 2
    assert flag.partition("=")[0] in capsys.readouterr().err


def test_a_store_without_a_repository_has_its_own_exit_code(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    url = f"sqlite:{tmp_path / 'store' / 'morag.db'}"
    from morag.backend.urls import open_backend

    open_backend(url).close()
    assert main(["admin", "purge", "--store", url]) == 4


def test_an_interrupted_purge_is_announced_by_a_dry_run(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / "journal.db").touch()
    assert main(["admin", "purge", "--store", url, "--journal", str(tmp_path / "j")]) == 0
    assert "interrupted" in capsys.readouterr().err

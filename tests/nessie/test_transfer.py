"""Nessie goes on with what `morag import` made of an export of its store, and of ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import morag
from tests.nessie.catalogs import InProcess, OverRest, names
from tests.nessie.server import Server, rocksdb
from tests.nessie.test_pull import without_config
from tests.nessie.work import SIZES, Work
from tests.server_process import run
from tests.transfer import nessie_files

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nessie


def test_nessie_goes_on_with_an_imported_store(tmp_path: Path) -> None:
    """Both servers wrote the store that is exported; files in either order are imported."""
    sizes = SIZES["small"]
    source = f"rocksdb:{tmp_path / 'source'}"
    with Server(rocksdb(tmp_path / "source"), tmp_path / "source.log", sizes.theirs) as server:
        nessie = OverRest(server)
        Work(nessie, "them").do(sizes.commits, sizes.their_bulk)
        nessie.configure("P30D")
    with morag.open(source, sizes.ours) as repo:
        Work(InProcess(repo), "us").do(sizes.commits, sizes.our_bulk)
        shown = without_config(InProcess(repo))
    exported = command(tmp_path, "export", "files.zip", "--store", source, "--check")
    assert exported["references"] == len(shown.references)
    nessie_files.rewrite(tmp_path / "files.zip", tmp_path / "newest-first", version=3)
    for name in ("files.zip", "newest-first"):
        copy = tmp_path / f"copy-of-{name}"
        done = command(tmp_path, "import", name, "--store", f"rocksdb:{copy}")
        assert done["unfit"] <= exported["unproven"] + 2
        with Server(rocksdb(copy), tmp_path / f"{name}.log", sizes.theirs) as server:
            nessie = OverRest(server)
            assert without_config(nessie).differences(shown) == []
            assert nessie.damage() == []
            Work(nessie, "them-again").do(commits=10, bulk=10)
            if name == "files.zip":  # Files in Nessie's order are made without `morag-extra`.
                assert nessie.policy() == "P30D"
            after = without_config(nessie)
            assert "them-again-dev" in names(after)
        with morag.open(f"rocksdb:{copy}") as repo:
            assert without_config(InProcess(repo)).differences(after) == []
            assert InProcess(repo).damage() == []


def command(directory: Path, *arguments: str) -> dict[str, int]:
    done = run(*arguments, "--json", "--quiet", directory=directory)
    assert done.returncode == 0, done.stderr
    report: dict[str, int] = json.loads(done.stdout)
    return report

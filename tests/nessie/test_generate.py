"""`morag generate` on a server of Nessie, and Nessie on a store of `morag spark generate`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import morag
from tests.nessie.catalogs import InProcess, OverRest
from tests.nessie.server import Server, rocksdb
from tests.nessie.work import Work
from tests.server_process import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nessie

_PATTERN = "stuff-${every,15,uuid}.key_${every,5,uuid}.${uuid}_0"


def test_contents_and_load_are_generated_on_nessie(tmp_path: Path) -> None:
    with Server(rocksdb(tmp_path / "data"), tmp_path / "log", {}) as server:
        for flags in (
            ("-t", "50", "-n", "60", "-b", "3", "-T", "0.1", "--workers", "3"),
            ("-t", "300", "-n", "20", "--puts-per-commit", "10", "--key-pattern", _PATTERN),
            ("simulate", "commit-to-branch", "--users", "2", "--commits", "10"),
            ("simulate", "mixed-workloads", "--duration", "1", "--namespace", "a"),
            ("simulate", "create-many-branches", "--branches", "5"),
            ("simulate", "key-list-spilling", "--base-commits", "5", "--duration", "1"),
        ):
            uri = ("-u", f"{server.address}/api/v1")
            arguments = [*flags[:2], *uri, *flags[2:], "--json"]
            done = run("generate", *arguments, directory=tmp_path)
            assert done.returncode == 0, done.stderr + done.stdout
            assert json.loads(done.stdout)["failures"] == 0
        assert OverRest(server).damage() == []


def test_nessie_goes_on_with_a_generated_store(tmp_path: Path) -> None:
    """The index of a commit is larger than Nessie would make it, and has spilled several times."""
    store = ("--store", f"rocksdb:{tmp_path / 'data'}", "--master", "local[1]")
    flags = ("-b", "2", "-t", "800", "-n", "40", "--puts-per-commit", "60", "-T", "0.05")
    done = run("spark", "generate", *store, *flags, "--key-pattern", _PATTERN, directory=tmp_path)
    assert done.returncode == 0, done.stderr
    with morag.open(f"rocksdb:{tmp_path / 'data'}") as repo:
        shown = InProcess(repo).seen()
        assert InProcess(repo).damage() == []
    with Server(rocksdb(tmp_path / "data"), tmp_path / "log", {}) as server:
        nessie = OverRest(server)
        assert nessie.seen().differences(shown) == []
        assert nessie.damage() == []
        Work(nessie, "them").do(commits=10, bulk=10)
        shown = nessie.seen()
    with morag.open(f"rocksdb:{tmp_path / 'data'}") as repo:
        assert InProcess(repo).seen().differences(shown) == []
        assert InProcess(repo).damage() == []

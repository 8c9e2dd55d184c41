"""`morag import --from` with Nessie as the source, and Nessie on the store that was filled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

import morag
from tests.nessie.catalogs import InProcess, OverRest, names
from tests.nessie.server import Server, rocksdb
from tests.nessie.work import SIZES, Work
from tests.server_process import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.nessie.catalogs import Catalog, Seen

pytestmark = pytest.mark.nessie


def test_nessie_goes_on_with_what_was_pulled_from_it(tmp_path: Path) -> None:
    """Indexes spill on both sides, and at other sizes."""
    sizes = SIZES["small"]
    store = f"rocksdb:{tmp_path / 'pulled'}"
    with Server(rocksdb(tmp_path / "source"), tmp_path / "source.log", sizes.theirs) as server:
        nessie = OverRest(server)
        Work(nessie, "them").do(sizes.commits, sizes.their_bulk)
        nessie.configure("P30D")
        shown = without_config(nessie)
        command = ["import", "--from", server.address, "--store", store, "--json"]
        done = run(*command, directory=tmp_path)
        assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["references"] == len(shown.references)
    # One commit has more operations, in another order, than can be tried.
    assert report["unfit"] <= 2
    with morag.open(store) as repo:
        pulled = InProcess(repo)
        assert without_config(pulled).differences(shown) == []
        assert pulled.damage() == []
        config = repo.repository_config()
        assert config is not None
        assert config.default_cutoff_policy == "P30D"
        Work(pulled, "us").do(commits=10, bulk=10)
        shown = without_config(pulled)
    with Server(rocksdb(tmp_path / "pulled"), tmp_path / "pulled.log", sizes.theirs) as server:
        nessie = OverRest(server)
        assert without_config(nessie).differences(shown) == []
        assert nessie.damage() == []
        assert nessie.policy() == "P30D"
        Work(nessie, "them-again").do(commits=10, bulk=10)
        shown = without_config(nessie)
        assert "them-again-dev" in names(shown)
    with morag.open(store) as repo:
        assert without_config(InProcess(repo)).differences(shown) == []
        assert InProcess(repo).damage() == []


def without_config(catalog: Catalog) -> Seen:
    """Everything but the time at which the repository was created."""
    return msgspec.structs.replace(catalog.seen(), config=None)

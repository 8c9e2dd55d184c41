"""Stores that Nessie wrote are intact, and Nessie continues a history that Morag cut."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import morag
from morag.cli.main import main
from morag.model.keys import ContentKey
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Put
from tests.nessie.catalogs import InProcess, OverRest, assert_same
from tests.nessie.server import Server, rocksdb
from tests.nessie.work import SIZES, Work, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.nessie

SMALL = SIZES["small"]


@contextmanager
def nessie_on(path: Path, log: str) -> Iterator[OverRest]:
    with Server(rocksdb(path / "data"), path / log, SMALL.theirs) as server:
        yield OverRest(server)


def check(path: Path) -> int:
    return main(["admin", "check", "--store", f"rocksdb:{path / 'data'}"])


def test_nessie_continues_a_history_that_was_cut(tmp_path: Path) -> None:
    with nessie_on(tmp_path, "before.log") as nessie:
        Work(nessie, "them").do(SMALL.commits, SMALL.their_bulk)
        hashes, contents = nessie.hashes("main"), nessie.contents("main")
    assert check(tmp_path) == 0
    middle = hashes[len(hashes) // 2]
    store = ["--store", f"rocksdb:{tmp_path / 'data'}"]
    assert main(["admin", "cut-history", middle, "--no-dry-run", *store]) == 0
    assert check(tmp_path) == 0
    with nessie_on(tmp_path, "after.log") as nessie:
        kept = hashes[: hashes.index(middle) + 1]
        assert nessie.hashes("main") == kept
        assert nessie.contents("main") == contents
        assert nessie.damage() == []
        meta = CommitMeta(message="after the cut")
        nessie.create("BRANCH", "later", nessie.head("main"))
        nessie.commit("later", [Put(ContentKey.of("later"), table(7))], meta)
        nessie.commit("main", [Put(ContentKey.of("newer"), table(8))], meta)
        nessie.merge("later", "main")
        nessie.commit("main", [Delete(ContentKey.of("newer"))], meta)
        shown = nessie.seen()
    assert check(tmp_path) == 0
    with morag.open(f"rocksdb:{tmp_path / 'data'}") as repo:
        assert_same(InProcess(repo), shown)
        assert InProcess(repo).damage() == []

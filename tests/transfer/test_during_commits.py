"""An export of a repository that changes has a set of references that belong together."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import pytest

import morag
from morag.backend.urls import open_backend
from morag.config import Settings
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.rules.operations import put
from tests.safety.history_checks import in_thread
from tests.transfer.copies import assert_intact, export_to, imported_copy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from morag.format.records import ObjId, Row


@pytest.mark.parametrize("engine", ["sqlite", "rocksdb"])
def test_exports_beside_commits_and_merges_are_complete(tmp_path: Path, engine: str) -> None:
    """Another server writes; here it is another thread with the store open."""
    url = f"{engine}:{tmp_path}/store?sync=off"
    stopped = Event()

    with morag.open(url) as repo:
        repo.commit("main", [put("start", "x")], "start")

        def work() -> None:
            number = 0
            while not stopped.is_set():
                number += 1
                branch = f"b{number % 5}"
                if number > 5:
                    repo.references.delete(branch)
                repo.references.create_branch(branch, "main")
                repo.commit(branch, [put(f"t{number}", "x")], f"commit {number}")
                repo.merge(branch, "main")

        working = in_thread(work)
        try:
            for number in range(3):
                backend = open_backend(url, read_only=True)
                export_to(tmp_path / f"files-{number}", backend)
                backend.close()
                check(tmp_path / f"files-{number}")
        finally:
            stopped.set()
            working.result(30)


def check(path: Path) -> None:
    """Commits were made one after the other, so `main` has a first part of all of them."""
    copy = imported_copy(path)
    messages = [entry.meta.message for entry in copy.history.log("main")][::-1]
    assert messages[0] == "start"
    assert len(messages) == len(set(messages))
    assert_intact(copy, 5)


def test_commits_after_the_references_were_read_are_left_out(tmp_path: Path) -> None:
    backend = open_backend("memory:")
    repo = Repository(backend, Settings(), World())
    repo.commit("main", [put("before", "x")], "before")

    class Committing:
        """Commits whenever rows are read, from the second time on."""

        reads = 0

        def __getattr__(self, name: str) -> object:
            return getattr(backend, name)

        def read_rows(self, repository: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
            self.reads += 1
            if 1 < self.reads < 20:
                repo.commit("main", [put(f"t{self.reads}", "x")], f"after {self.reads}")
            return backend.read_rows(repository, ids)

    report = export_to(tmp_path / "files", Committing())  # type: ignore[arg-type]
    copy = imported_copy(tmp_path / "files")
    log = list(copy.history.log("main"))
    assert len(log) == report.commits
    assert log[-1].meta.message == "before"
    assert_intact(copy)

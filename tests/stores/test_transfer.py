"""A long history goes into PostgreSQL, and out of it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.transfer.compared_rows import assert_same_stores
from tests.transfer.exported_history import ExportedHistory, chosen_commits, command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.stores

SERVER = "postgres"
_COMMITS: Final = chosen_commits(3_000)


def test_a_long_history_goes_through_postgresql_unchanged(tmp_path: Path, url: str) -> None:
    """The ids of its commits are those of the first store, so the second export has the same."""
    exported = ExportedHistory(tmp_path, _COMMITS)
    command("import", str(exported.path), "--store", url, directory=tmp_path)
    command("admin", "check", "--store", url, directory=tmp_path)
    assert assert_same_stores(url, exported.store) >= _COMMITS
    again, back = tmp_path / "again.zip", f"sqlite:{tmp_path / 'back.db'}"
    command("export", str(again), "--store", url, directory=tmp_path)
    command("import", str(again), "--store", back, directory=tmp_path)
    assert assert_same_stores(back, exported.store) >= _COMMITS

"""Spark's executors export from PostgreSQL and import into it, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

import morag
from tests.transfer.comparing import assert_same
from tests.transfer.exported_history import ExportedHistory, command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.stores, pytest.mark.timeout(600)]  # Spark is slow on busy machines.

SERVER = "postgres"
_COMMITS: Final = 2_000


def test_a_history_goes_through_postgresql_on_spark_unchanged(tmp_path: Path, url: str) -> None:
    exported = ExportedHistory(tmp_path, _COMMITS)
    path, again = str(exported.path), str(tmp_path / "again")
    local = ("--master", "local[2]")
    small = ("--group-commits", "150", *local)
    command("spark", "import", path, "--store", url, *small, directory=tmp_path)
    command("admin", "check", "--store", url, directory=tmp_path)
    command("spark", "export", again, "--store", url, *local, directory=tmp_path)
    back = f"sqlite:{tmp_path / 'back.db'}"
    command("import", again, "--store", back, directory=tmp_path)
    for store in (url, back):
        with (
            morag.open(store, read_only=True) as found,
            morag.open(exported.store, read_only=True) as expected,
        ):
            assert assert_same(found, expected) >= _COMMITS

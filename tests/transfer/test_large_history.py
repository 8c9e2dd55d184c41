"""A long history with everything in it, exported and imported by the commands, arrives unchanged.

It has 6,000 commits, others each day; with `SAMPLE_DATE=all` it has 100,000, and the variable
`LARGE_HISTORY` sets another number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.sampling import chosen_day
from tests.transfer.compared_rows import assert_same_stores
from tests.transfer.exported_history import ExportedHistory, chosen_commits, command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

_COMMITS: Final = chosen_commits(100_000 if chosen_day() is None else 6_000)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> ExportedHistory:
    return ExportedHistory(tmp_path_factory.mktemp("exported"), _COMMITS)


@pytest.mark.parametrize("engine", ["rocksdb", "sqlite"])
def test_a_long_history_arrives_unchanged(
    exported: ExportedHistory, tmp_path: Path, engine: str
) -> None:
    store = f"{engine}:{tmp_path / 'imported'}"
    command("import", str(exported.path), "--store", store, directory=tmp_path)
    command("admin", "check", "--store", store, directory=tmp_path)
    assert assert_same_stores(store, exported.store) >= _COMMITS

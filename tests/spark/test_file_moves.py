"""Moving a file on one disk and between disks, with failures and races."""

from __future__ import annotations

import os
import resource
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Final

import pytest

from morag.spark.files import Files, move_on_disk
from morag.spark.gc import quarantine

if TYPE_CHECKING:
    from pathlib import Path

_LONG_AGO: Final = 1_000_000_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tmp_path / "x.parquet"
    made.write_bytes(b"abc" * 1000)
    os.utime(made, (_LONG_AGO, _LONG_AGO))
    return made


def test_within_a_disk_a_move_is_a_rename(source: Path, tmp_path: Path) -> None:
    before, target = source.stat(), tmp_path / "deep" / "down" / "y.parquet"
    move_on_disk(source, target)
    assert target.stat().st_ino == before.st_ino
    assert not source.exists()


def test_a_move_to_another_disk_keeps_the_modification_time(
    source: Path, another_disk: Path
) -> None:
    target = another_disk / "q" / "x.parquet"
    move_on_disk(source, target)
    assert target.read_bytes() == b"abc" * 1000
    assert target.stat().st_mtime == _LONG_AGO
    assert not source.exists()
    assert list(target.parent.iterdir()) == [target]


def test_an_incomplete_copy_never_has_the_final_name(source: Path, another_disk: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # As if the disk were full.
    try:
        with pytest.raises(OSError, match="too large"):
            move_on_disk(source, another_disk / "x.parquet")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(another_disk.iterdir()) == []
    assert source.stat().st_size == 3000


def test_two_tasks_that_move_one_file_at_once_do_not_damage_it(
    source: Path, another_disk: Path
) -> None:
    content = source.read_bytes()
    waiting = another_disk / ".morag-quarantine" / "x.parquet"
    row = {"path": str(source), "size_bytes": 3000, "quarantined": str(waiting)}
    for _ in range(20):
        both = Barrier(2)

        def remove(both: Barrier = both) -> list[str]:
            both.wait()
            return [
                each[2] for each in quarantine.remove(Files(), "quarantine", 2**62, iter([row]))
            ]

        with ThreadPoolExecutor(2) as pool:
            tasks = [pool.submit(remove) for _ in range(2)]
        assert [task.result() for task in tasks] == [["QUARANTINED"]] * 2
        assert waiting.read_bytes() == content
        assert [each[2] for each in quarantine.restore(Files(), iter([row]))] == ["RESTORED"]
        assert source.read_bytes() == content

"""Moving single files into quarantine and back, and deleting them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from morag.spark.files import Files
from morag.spark.gc import quarantine
from morag.spark.gc.plan import Plan, Policies
from morag.spark.gc.quarantine import FilesBeforeSweep
from morag.spark.locations import Location

if TYPE_CHECKING:
    from morag.spark.gc.quarantine import Action

_NOW: Final = 4_000_000_000_000_000  # Long after any file here was written.


# The process is killed while it copies, because of a limit on the size of its files.
_KILLED: Final = """
import resource, signal, sys
from pathlib import Path
from morag.spark.files import move_on_disk
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
move_on_disk(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "t" / "data" / "x.parquet"
    made.parent.mkdir(parents=True)
    made.write_bytes(b"abc")
    return made


def test_a_file_is_quarantined_in_its_own_directory_and_leaves_no_empty_directories(
    file: Path,
) -> None:
    row = _row(file)
    assert _removed(row) == "QUARANTINED"
    [waiting] = file.parent.rglob("x.parquet")
    assert waiting.parent == file.parent / ".morag-quarantine" / "a-run"
    assert _restored(row) == "RESTORED"
    assert file.read_bytes() == b"abc"
    assert list(file.parent.iterdir()) == [file]
    assert _removed(row) == "QUARANTINED"
    assert _purged(row) == "PURGED"
    assert list(file.parent.iterdir()) == []


def test_partial_copies_are_purged_with_their_file(file: Path, another_disk: Path) -> None:
    row = _row(file, _plan(quarantine=another_disk.as_uri()))
    with file.open("ab") as more:
        more.truncate(10**6)
    subprocess.run([sys.executable, "-c", _KILLED, file, _path(row["quarantined"])], check=False)
    [half] = _files_below(another_disk)
    assert 0 < half.stat().st_size < file.stat().st_size
    assert _removed(row) == "QUARANTINED"
    assert half in _files_below(another_disk)
    assert _purged(row) == "PURGED"
    assert list(another_disk.iterdir()) == []


def test_a_requested_quarantine_is_used_for_files_of_its_kind(file: Path, tmp_path: Path) -> None:
    away = tmp_path.resolve() / "away"
    plan = _plan(quarantine=away.as_uri())
    row = _row(file, plan)
    assert _removed(row) == "QUARANTINED"
    assert [each for each in away.rglob("*") if each.is_file()] == [
        away / ".morag-quarantine" / "a-run" / file.relative_to("/")
    ]
    assert _restored(row) == "RESTORED"
    assert list(away.iterdir()) == []
    bucket = plan.quarantined("s3://lake/t/x")
    assert bucket == "s3://lake/.morag-quarantine/a-run/lake/t/x", "a file on S3 stays on S3"


def test_files_of_two_buckets_have_different_names_in_one_quarantine() -> None:
    plan = _plan(quarantine="s3://away")
    names = {plan.quarantined(f"s3://{bucket}/t/x") for bucket in ("one", "two")}
    assert len(names) == 2


def test_work_that_was_done_before_a_crash_is_not_repeated(file: Path) -> None:
    row = _row(file)
    waiting = _path(row["quarantined"])
    waiting.parent.mkdir(parents=True)
    waiting.write_bytes(b"abc")  # As if copied, and not deleted yet.
    assert _removed(row) == "QUARANTINED"
    assert not file.exists()
    assert _removed(row) == "QUARANTINED"
    file.write_bytes(b"abc")
    assert _restored(row) == "RESTORED"
    assert not waiting.exists()
    assert _restored(row) == "IN PLACE"
    assert _purged(row) == "GONE"


def test_two_different_files_of_one_name_are_both_kept(file: Path) -> None:
    row = _row(file)
    waiting = _path(row["quarantined"])
    waiting.parent.mkdir(parents=True)
    waiting.write_bytes(b"abd")
    [[_, _, outcome, detail]] = quarantine.restore(Files(), iter([row]))
    assert outcome == "FAILED"
    assert "x.parquet' exists" in detail
    assert (file.read_bytes(), waiting.read_bytes()) == (b"abc", b"abd")


def test_a_rewritten_file_stays(file: Path) -> None:
    os.utime(file, (_NOW // 10**6, _NOW // 10**6))
    assert _removed(_row(file)) == "CHANGED"
    assert file.exists()


def test_a_deleted_file_cannot_be_restored(file: Path) -> None:
    row = _row(file)
    assert _removed(row, "delete") == "DELETED"
    assert _removed(row) == "GONE"
    assert _restored(row) == "LOST"


def test_a_missing_directory_is_a_failure_and_not_a_removed_file(file: Path) -> None:
    row = _row(file)
    moved = file.parent.rename(file.parent.with_name("not mounted"))
    assert _removed(row) == "FAILED"
    moved.rename(file.parent)
    assert _removed(row) == "QUARANTINED"


def test_a_file_in_quarantine_can_be_read_under_all_its_old_names(file: Path) -> None:
    named = file.rename(file.with_name("x y.parquet"))
    _removed(_row(named))
    behind = FilesBeforeSweep(plan=_plan())
    assert behind.read(f"file:{file.parent}/x y.parquet") == b"abc"
    assert behind.read(f"{file.parent}/x%20y.parquet") == b"abc"
    with pytest.raises(FileNotFoundError):
        behind.read(str(file))


def test_a_file_in_a_requested_quarantine_can_be_read_through_a_link(
    file: Path, tmp_path: Path
) -> None:
    plan = _plan(quarantine=(tmp_path.resolve() / "away").as_uri())
    _removed(_row(file, plan))
    (tmp_path / "link").symlink_to(file.parent)
    assert FilesBeforeSweep(plan=plan).read(f"{tmp_path}/link/x.parquet") == b"abc"


def _plan(quarantine: str | None = None) -> Plan:
    return Plan(
        id="a-run",
        origin="",
        now_nanos=_NOW * 1000,
        policies=Policies(),
        grace_nanos=0,
        snapshots="all",
        dropped=True,
        locations=(),
        ignore_missing=False,
        quarantine=quarantine,
        records="",
    )


def _row(file: Path, plan: Plan | None = None) -> dict[str, Any]:
    listed = {"path": file.resolve().as_uri().replace("%20", " "), "size_bytes": 3}
    [row] = quarantine.assign_quarantine(plan or _plan(), iter([listed | {"modified_micros": 1}]))
    return dict(zip(("path", "size_bytes", "modified_micros", "quarantined"), row, strict=True))


def _removed(row: dict[str, Any], action: Action = "quarantine") -> str:
    [[_, _, outcome, _]] = quarantine.remove(Files(), action, _NOW, iter([row]))
    return str(outcome)


def _restored(row: dict[str, Any]) -> str:
    [[_, _, outcome, _]] = quarantine.restore(Files(), iter([row]))
    return str(outcome)


def _purged(row: dict[str, Any]) -> str:
    [[_, _, outcome, _]] = quarantine.purge(Files(), iter([row]))
    return str(outcome)


def _files_below(directory: Path) -> list[Path]:
    return [each for each in directory.rglob("*") if each.is_file()]


def _path(location: str) -> Path:
    return Path(Location.of(location).path)

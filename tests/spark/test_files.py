"""Files of a lake by their URIs, on disk; tests of S3 are in test_gc_s3.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag.spark import CannotRun
from morag.spark.files import Files, Place, real, spellings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "t" / "data" / "day=1").mkdir(parents=True)
    (tmp_path / "t" / "data" / "day=1" / "a.parquet").write_bytes(b"abc")
    (tmp_path / "t" / "b.avro").write_bytes(b"de")
    return tmp_path.resolve()


def test_all_ways_to_write_a_location_have_a_spelling_in_common(tree: Path) -> None:
    path = f"{tree}/t/b.avro"
    for location in (path, f"file:{path}", f"file://{path}", f"FILE:///{path}"):
        assert spellings(location) == {f"file://{path}"}
    assert spellings("s3a://lake/x//y") == spellings("s3://lake/x/y") == {"s3://lake/x/y"}


def test_links_are_seen_through(tree: Path) -> None:
    (tree / "link").symlink_to(tree / "t")
    assert real(f"{tree}/link/b.avro") == f"file://{tree}/t/b.avro"
    found = Files().walk(f"file://{tree}/link", lambda name: False)
    assert {each.path for each in found} == {
        f"file://{tree}/t/b.avro",
        f"file://{tree}/t/data/day=1/a.parquet",
    }


def test_names_that_writers_may_decode_have_a_spelling_for_each() -> None:
    assert spellings("s3://lake/a%20b?c") == {
        "s3://lake/a%20b?c",
        "s3://lake/a b?c",
        "s3://lake/a%20b",
        "s3://lake/a b",
    }


def test_a_walk_tells_sizes_and_does_not_follow_links_inside(tree: Path) -> None:
    (tree / "elsewhere").mkdir()
    (tree / "elsewhere" / "c").write_bytes(b"c")
    (tree / "t" / "out").symlink_to(tree / "elsewhere")
    (tree / "t" / "file").symlink_to(tree / "elsewhere" / "c")
    found = Files().walk(f"{tree}/t", lambda name: name == "data")
    assert [(each.path, each.size_bytes) for each in found] == [(f"file://{tree}/t/b.avro", 2)]
    assert list(Files().walk(f"{tree}/nowhere", lambda name: False)) == []


def test_files_are_found_read_moved_and_deleted(tree: Path) -> None:
    files, here, there = Files(), f"file://{tree}/t/b.avro", f"file:{tree}/q/deep/b.avro"
    assert files.read(here) == b"de"
    files.move(here, there)
    assert files.find(here) is None
    found = files.find(there)
    assert found is not None and found.size_bytes == 2
    with pytest.raises(FileNotFoundError):
        files.read(here)
    files.delete(there)
    with pytest.raises(FileNotFoundError):
        files.delete(there)


def test_a_move_overwrites_nothing(tree: Path) -> None:
    with pytest.raises(FileExistsError):
        Files().move(f"{tree}/t/b.avro", f"{tree}/t/data/day=1/a.parquet")
    assert Files().read(f"{tree}/t/data/day=1/a.parquet") == b"abc"


def test_other_file_systems_are_refused_by_name() -> None:
    with pytest.raises(CannotRun, match="'gs'"):
        Place.of("gs://lake/x")

"""Files of a lake by their URIs."""

from __future__ import annotations

import os
import shutil
from time import time_ns
from typing import TYPE_CHECKING

import pytest
from pyarrow.fs import FileInfo, FileType

from morag.spark import CannotRun, files
from morag.spark.files import Files
from tests.spark.s3_buckets import bucket, put

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "t" / "data" / "day=1").mkdir(parents=True)
    (tmp_path / "t" / "data" / "day=1" / "a.parquet").write_bytes(b"abc")
    (tmp_path / "t" / "b.avro").write_bytes(b"de")
    return tmp_path.resolve()


@pytest.fixture(scope="module")
def s3() -> Iterator[Files]:
    with bucket("lake") as options:
        yield Files(options)


def test_a_walk_returns_sizes_and_does_not_follow_links(tree: Path) -> None:
    (tree / "elsewhere").mkdir()
    (tree / "elsewhere" / "c").write_bytes(b"c")
    (tree / "t" / "out").symlink_to(tree / "elsewhere")
    (tree / "t" / "file").symlink_to(tree / "elsewhere" / "c")
    found = Files().walk(f"{tree}/t", lambda name: name == "data")
    assert [(each.path, each.size_bytes) for each in found] == [(f"file://{tree}/t/b.avro", 2)]
    assert list(Files().walk(f"{tree}/nowhere", lambda name: False)) == []


def test_a_linked_directory_can_be_walked_and_a_linked_file_found(tree: Path) -> None:
    (tree / "link").symlink_to(tree / "t")
    found = Files().walk(f"file://{tree}/link", lambda name: False)
    assert {each.path for each in found} == {
        f"file://{tree}/t/b.avro",
        f"file://{tree}/t/data/day=1/a.parquet",
    }
    (tree / "file").symlink_to(tree / "t" / "b.avro")
    linked = Files().find(f"{tree}/file")
    assert linked is not None and linked.size_bytes == 2
    (tree / "t" / "b.avro").unlink()
    assert Files().find(f"{tree}/file") is None


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


def test_a_file_is_read_under_all_names_that_writers_give_it(tree: Path) -> None:
    (tree / "a b").write_bytes(b"decoded")
    assert Files().read(f"file://{tree}/a%20b") == b"decoded"
    (tree / "a%20b").write_bytes(b"as it is")
    assert Files().read(f"file://{tree}/a%20b") == b"as it is"


def test_a_file_exists_under_all_names_that_writers_give_it(tree: Path, s3: Files) -> None:
    (tree / "a b").write_bytes(b"decoded")
    assert Files().find(f"{tree}/a%20b") is None
    assert Files().exists(f"{tree}/a%20b")
    assert not Files().exists(f"{tree}/a%20c")
    put(s3.options, "s3://lake/there/x", b"x")
    assert s3.exists("s3a://lake//there/x"), "Hadoop collapses two slashes"
    with pytest.raises(CannotRun, match="two slashes"):
        s3.exists("s3://lake//there/y")


def test_an_old_file_that_was_moved_here_is_not_old(tree: Path) -> None:
    before = time_ns() // 1000
    brought = shutil.copy2(tree / "t" / "b.avro", tree / "c.avro")
    os.utime(brought, (1, 1))
    found = Files().find(str(brought))
    assert found is not None and found.modified_micros is not None
    assert found.modified_micros > before - 60 * 10**6
    os.utime(brought, (10**10, 10**10))
    written = Files().find(str(brought))
    assert written is not None and written.modified_micros == 10**16


def test_a_move_overwrites_nothing(tree: Path) -> None:
    here, there = tree / "t" / "b.avro", tree / "t" / "data" / "day=1" / "a.parquet"
    with pytest.raises(FileExistsError, match="is not a copy of"):
        Files().move(str(here), str(there))
    assert (here.read_bytes(), there.read_bytes()) == (b"de", b"abc")


def test_a_move_that_was_stopped_half_way_is_completed(tree: Path) -> None:
    here, there = tree / "t" / "b.avro", tree / "c.avro"
    there.write_bytes(here.read_bytes())
    Files().move(str(here), str(there))
    assert not here.exists()
    assert there.read_bytes() == b"de"


def test_a_link_to_the_file_is_not_taken_for_a_copy_of_it(tree: Path) -> None:
    here, there = tree / "t" / "b.avro", tree / "c.avro"
    there.symlink_to(here)
    with pytest.raises(FileExistsError):
        Files().move(str(here), str(there))
    assert here.read_bytes() == b"de"


def test_a_file_without_a_time_is_not_old() -> None:
    assert files._on_s3(FileInfo("b/x", FileType.File, size=1)).modified_micros is None


def test_values_of_options_are_not_shown() -> None:
    shown = repr(Files({"s3.secret-access-key": "hush", "s3.region": "here"}))
    assert shown == "Files(s3.region, s3.secret-access-key)"


def test_a_move_on_s3_that_was_stopped_half_way_is_completed(s3: Files) -> None:
    here, there = "s3://lake/half/x", "s3://lake/half/q/x"
    put(s3.options, here, b"abc")
    put(s3.options, there, b"abc")
    s3.move(here, there)
    assert s3.find(here) is None
    assert s3.read(there) == b"abc"
    left = {each.path for each in s3.walk("s3://lake/half", lambda name: False)}
    assert left == {there}, "the object that Arrow leaves for a directory is not a file"
    put(s3.options, here, b"abd")
    with pytest.raises(FileExistsError):
        s3.move(here, there)
    assert (s3.read(here), s3.read(there)) == (b"abd", b"abc")


def test_directories_with_an_empty_name_are_skipped(s3: Files) -> None:
    for key in ("x//y", "x/z", "x/y"):
        put(s3.options, f"s3://lake/slashes/{key}", key.encode())
    found = s3.walk("s3://lake/slashes", lambda name: False)
    assert {each.path for each in found} == {"s3://lake/slashes/x/y", "s3://lake/slashes/x/z"}
    assert list(s3.walk("s3://lake/slashes//x", lambda name: False)) == []
    assert s3.read("s3a://lake//slashes/x/z") == b"x/z", "Hadoop collapses two slashes"
    with pytest.raises(CannotRun, match="two slashes"):
        s3.read("s3://lake/slashes//nowhere")


def test_a_file_that_s3_cannot_copy_stays(s3: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_S3_COPY_LIMIT_BYTES", 2)  # 5 GiB are too much for a test.
    put(s3.options, "s3://lake/big/x", b"abc")
    with pytest.raises(CannotRun, match="5 GiB"):
        s3.move("s3://lake/big/x", "s3://lake/big/q/x")
    assert s3.read("s3://lake/big/x") == b"abc"
    assert s3.find("s3://lake/big/q/x") is None

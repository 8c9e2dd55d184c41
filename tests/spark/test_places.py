"""Locations and their spellings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag.spark import CannotRun
from morag.spark.places import Place, listed_as, places_meant, spellings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_all_ways_to_write_a_location_have_a_spelling_in_common(tmp_path: Path) -> None:
    path = f"{tmp_path.resolve()}/b.avro"
    for location in (path, f"file:{path}", f"file://{path}", f"FILE:///{path}"):
        assert spellings(location) == {f"file://{path}"}
    assert spellings("s3a://lake/x/y") == spellings("s3://lake/x/y") == {"s3://lake/x/y"}


def test_two_slashes_are_one_on_disks_and_may_be_one_or_two_on_s3() -> None:
    assert str(Place.of("file:///a//b")) == "file:///a/b"
    assert spellings("s3a://lake/x//y") == {"s3://lake/x//y", "s3://lake/x/y"}
    assert [str(each) for each in places_meant("s3://lake/x//y")] == [
        "s3://lake/x//y",
        "s3://lake/x/y",
    ]


def test_links_to_directories_and_to_files_are_seen_through(tmp_path: Path) -> None:
    top = tmp_path.resolve()
    (top / "t").mkdir()
    (top / "t" / "b").write_bytes(b"b")
    (top / "link").symlink_to(top / "t")
    (top / "t" / "a").symlink_to(top / "link" / "b")
    assert spellings(f"{top}/link/b") == {f"file://{top}/t/b"}
    assert spellings(f"{top}/link/a") == {f"file://{top}/t/a", f"file://{top}/t/b"}


def test_a_directory_is_named_without_links(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t")
    for location in (f"{tmp_path}/t", f"file:{tmp_path}/link", f"file://{tmp_path}/link/"):
        assert listed_as(location) == f"file://{tmp_path.resolve()}/t"
    assert listed_as("s3a://lake/t/") == "s3://lake/t"
    assert (listed_as("/"), listed_as("s3://lake/")) == ("file://", "s3://lake")


def test_names_that_writers_may_decode_have_a_spelling_for_each() -> None:
    assert spellings("s3://lake/a%20b?c") == {
        "s3://lake/a%20b?c",
        "s3://lake/a b?c",
        "s3://lake/a%20b",
        "s3://lake/a b",
    }


def test_other_file_systems_are_refused_by_name() -> None:
    with pytest.raises(CannotRun, match="'gs'"):
        Place.of("gs://lake/x")


def test_a_worker_follows_a_link_anew_in_each_task(spark: SparkSession, tmp_path: Path) -> None:
    top = tmp_path.resolve()
    link = top / "link"
    for name in ("old", "new"):
        (top / name).mkdir()
        link.unlink(missing_ok=True)
        link.symlink_to(top / name)
        paths = spark.sparkContext.parallelize([f"{link}/x"], 1)
        assert paths.map(spellings).collect() == [{f"file://{top}/{name}/x"}]

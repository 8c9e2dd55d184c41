"""Directories as listings name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.spark.directories import directories_above, listed_as

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_a_directory_is_named_without_links(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t")
    for location in (f"{tmp_path}/t", f"file:{tmp_path}/link", f"file://{tmp_path}/link/"):
        assert listed_as(location) == f"file://{tmp_path.resolve()}/t"
    assert listed_as("s3a://lake/t/") == "s3://lake/t"
    assert (listed_as("/"), listed_as("s3://lake/")) == ("file://", "s3://lake")


def test_all_directories_above_a_file_are_found(spark: SparkSession) -> None:
    paths = spark.createDataFrame([("file:///a/b/c",), ("s3://lake/a//c",)], "path STRING")
    found = paths.select("path", directories_above("path").alias("directories"))
    assert {row.path: row.directories for row in found.collect()} == {
        "file:///a/b/c": ["file://", "file:///a", "file:///a/b"],
        "s3://lake/a//c": ["s3://lake", "s3://lake/a", "s3://lake/a/"],
    }

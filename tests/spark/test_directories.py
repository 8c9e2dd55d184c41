"""The directories that listed files are in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.spark.directories import directories_above

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_all_directories_above_a_file_are_found(spark: SparkSession) -> None:
    paths = spark.createDataFrame([("file:///a/b/c",), ("s3://lake/a//c",)], "path STRING")
    found = paths.select("path", directories_above("path").alias("directories"))
    assert {row.path: row.directories for row in found.collect()} == {
        "file:///a/b/c": ["file://", "file:///a", "file:///a/b"],
        "s3://lake/a//c": ["s3://lake", "s3://lake/a", "s3://lake/a/"],
    }

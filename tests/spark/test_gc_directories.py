"""Directories of contents: a generous guess to protect files, a strict one to list garbage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag.spark.gc.expand import directory_around
from morag.spark.gc.lake_files import own_directory
from morag.spark.locations import directories_above

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UUID = "6f1c0d4e-6a7b-4a55-9d3c-0123456789ab"


@pytest.mark.parametrize(
    ("metadata", "directory"),
    [
        ("s3://lake/db/t/metadata/00000-x.json", "s3://lake/db/t"),
        ("s3://lake/db/d/_delta_log/00000.json", "s3://lake/db/d"),
        ("s3://lake/functions/f.json", "s3://lake/functions"),
        ("s3://lake/metadata/x.json", "s3://lake"),
        ("/x.json", "/"),
    ],
)
def test_the_directory_around_metadata_is_the_one_above_the_metadata_directory(
    metadata: str, directory: str
) -> None:
    assert directory_around(metadata) == directory


@pytest.mark.parametrize(
    ("key", "directory"),
    [
        ("db.t", "s3://lake/db/t"),
        ("db.t", "s3://lake/db.db/t"),
        ("a.db.t", "s3://lake/db/t"),
        ("db.t", f"s3://lake/elsewhere/t_{UUID}"),
        ("t", f"s3://lake/t_{UUID}"),
    ],
)
def test_a_directory_with_a_name_that_engines_choose_belongs_to_the_table(
    key: str, directory: str
) -> None:
    assert own_directory(key, f"{directory}/metadata/00000-x.json") == directory


@pytest.mark.parametrize(
    ("key", "metadata"),
    [
        ("db.t", "s3://lake/warehouse/metadata/00000-x.json"),
        ("db.t", "s3://lake/other/t/metadata/00000-x.json"),
        ("db.t", "s3://lake/db/t_all/metadata/00000-x.json"),
        ("t", "s3://lake/t/metadata/00000-x.json"),
        ("db.t", "s3://lake/metadata/00000-x.json"),
        (".d*.b.t", "s3://lake/b/t/x.json"),
    ],
)
def test_any_other_directory_may_be_shared(key: str, metadata: str) -> None:
    assert own_directory(key, metadata) is None


def test_all_directories_above_a_file_are_found(spark: SparkSession) -> None:
    paths = spark.createDataFrame([("file:///a/b/c",), ("s3://lake/a//c",)], "path STRING")
    found = paths.select("path", directories_above("path").alias("directories"))
    assert {row.path: row.directories for row in found.collect()} == {
        "file:///a/b/c": ["file://", "file:///a", "file:///a/b"],
        "s3://lake/a//c": ["s3://lake", "s3://lake/a", "s3://lake/a/"],
    }

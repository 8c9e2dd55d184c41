"""Where a content's files are, by its metadata: for keeping generously, for listing strictly."""

from __future__ import annotations

import pytest

from morag.spark.gc.guesses import own_directory, surroundings

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
def test_everything_around_the_metadata_may_belong_to_a_content(
    metadata: str, directory: str
) -> None:
    assert surroundings(metadata) == directory


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
def test_a_directory_with_the_names_that_engines_choose_is_a_tables_own(
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

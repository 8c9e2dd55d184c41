"""Diffs of tables that Spark wrote, where rows are deleted beside the data files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag import ContentKey
from morag.client import Client
from morag.spark.diffs import changed_rows, diff
from morag.spark.opening import Origin
from tests.clients.catalogs import add_catalog

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.clients.rest import Rest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Of the sockets to its JVM.
]


@pytest.mark.parametrize("version", [2, 3], ids=["position deletes", "deletion vectors"])
def test_rows_that_are_deleted_beside_their_files_are_told(
    iceberg: SparkSession, rest: Rest, tmp_path: Path, version: int
) -> None:
    here, there = f"diff_main{version}", f"diff_dev{version}"
    origin = Origin(uri=rest.address)
    with Client(rest.address) as client:
        client.references.create_branch(here, at=None)
        add_catalog(iceberg, here, rest.address, 2, tmp_path, here)
        iceberg.sql(f"CREATE NAMESPACE {here}.db")
        modes = ", ".join(f"'write.{v}.mode' = 'merge-on-read'" for v in ("delete", "update"))
        iceberg.sql(
            f"CREATE TABLE {here}.db.t (id BIGINT, word STRING) USING iceberg "
            f"TBLPROPERTIES ('format-version' = '{version}', {modes})"
        )
        iceberg.sql(
            f"INSERT INTO {here}.db.t SELECT /*+ COALESCE(1) */ * "
            "FROM VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four')"
        )
        client.references.create_branch(there, at=here)
    add_catalog(iceberg, there, rest.address, 2, tmp_path, there)
    iceberg.sql(f"DELETE FROM {there}.db.t WHERE id = 2")
    iceberg.sql(f"UPDATE {there}.db.t SET word = 'drei' WHERE id = 3")

    rows = changed_rows(iceberg, origin, here, there, ContentKey.of("db", "t"), on=["id"])
    assert sorted(map(tuple, rows.collect())) == [
        ("AFTER", 3, "drei"),
        ("BEFORE", 3, "three"),
        ("REMOVED", 2, "two"),
    ]
    (told,) = diff(iceberg, origin, here, there).collect()
    assert (told.change, told.history, len(told.operations)) == ("CHANGED", "AHEAD", 2)
    assert (told.from_rows, told.to_rows) == (4, 3)
    assert told.schema_changes == []
    assert told.problem is None

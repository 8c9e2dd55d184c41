"""Diffs of tables that Spark wrote, with delete files and deletion vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag import ContentKey, Namespace, Put
from morag.client import Client
from morag.spark.diffs import changed_rows, diff, since_parting
from morag.spark.opening import Origin
from tests.interop.spark_settings import add_catalog

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.interop.rest import Rest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # PySpark leaves sockets open.
]


@pytest.mark.parametrize("server", ["rest", "nessie"], ids=["morag", "nessie"])
def test_the_logs_of_a_server_show_where_references_parted(
    request: pytest.FixtureRequest, server: str
) -> None:
    address = request.getfixturevalue(server).address
    origin = Origin(uri=address)

    def commit(branch: str, name: str) -> str:
        put = Put(ContentKey.of(name), Namespace.of(name))
        return f"@{client.commit(branch, [put], name).hash}"

    with Client(address) as client:
        client.references.create_branch("parting_main", at=None)
        parted = commit("parting_main", "one")
        client.references.create_branch("parting_dev", at="parting_main")
        commit("parting_main", "two")
        merged = commit("parting_dev", "three")
        assert since_parting(origin, "parting_main", "parting_dev") == (parted, merged)
        client.merge("parting_dev", "parting_main")
        later = commit("parting_dev", "four")
        assert since_parting(origin, "parting_main", "parting_dev") == (merged, later)


@pytest.mark.parametrize("version", [2, 3], ids=["position deletes", "deletion vectors"])
def test_rows_that_delete_files_remove_are_found(
    iceberg: SparkSession, rest: Rest, tmp_path: Path, version: int
) -> None:
    main, dev = f"diff_main{version}", f"diff_dev{version}"
    origin = Origin(uri=rest.address)
    with Client(rest.address) as client:
        client.references.create_branch(main, at=None)
        add_catalog(iceberg, main, rest.address, 2, tmp_path, main)
        iceberg.sql(f"CREATE NAMESPACE {main}.db")
        modes = ", ".join(f"'write.{v}.mode' = 'merge-on-read'" for v in ("delete", "update"))
        iceberg.sql(
            f"CREATE TABLE {main}.db.t (id BIGINT, word STRING) USING iceberg "
            f"TBLPROPERTIES ('format-version' = '{version}', {modes})"
        )
        iceberg.sql(
            f"INSERT INTO {main}.db.t SELECT /*+ COALESCE(1) */ * "
            "FROM VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four')"
        )
        client.references.create_branch(dev, at=main)
    add_catalog(iceberg, dev, rest.address, 2, tmp_path, dev)
    iceberg.sql(f"DELETE FROM {dev}.db.t WHERE id = 2")
    iceberg.sql(f"UPDATE {dev}.db.t SET word = 'drei' WHERE id = 3")

    rows = changed_rows(iceberg, origin, main, dev, ContentKey.of("db", "t"), on=["id"])
    assert sorted(map(tuple, rows.collect())) == [
        ("AFTER", 3, "drei"),
        ("BEFORE", 3, "three"),
        ("REMOVED", 2, "two"),
    ]
    (found,) = diff(iceberg, origin, main, dev).collect()
    assert (found.change, found.history, len(found.operations)) == ("CHANGED", "AHEAD", 2)
    assert (found.from_rows, found.to_rows) == (4, 3)
    assert found.schema_changes == []
    assert found.problem is None

"""Spark with Iceberg's NessieCatalog, through both versions of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.spark_scenario import SparkScenario
from tests.interop.spark_settings import add_catalog

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.interop.rest import Rest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # PySpark leaves sockets open.
]


@pytest.fixture(scope="session")
def run_scenario(
    iceberg: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, Rest, int], SparkScenario]:
    directory = tmp_path_factory.mktemp("warehouses")

    def run(who: str, rest: Rest, api: int) -> SparkScenario:
        main, dev = f"{who}_v{api}", f"{who}_v{api}_dev"
        for branch in (main, dev):
            add_catalog(iceberg, branch, rest.address, api, directory / main, ref=branch)
        scenario = SparkScenario(iceberg, rest, main, dev)
        scenario.run()
        return scenario

    return run


@pytest.fixture(scope="session")
def scenario(
    run_scenario: Callable[[str, Rest, int], SparkScenario], rest: Rest, api: int
) -> SparkScenario:
    return run_scenario("morag", rest, api)


def test_namespaces_are_created_changed_listed_and_dropped(scenario: SparkScenario) -> None:
    results = scenario.results
    assert results["SHOW NAMESPACES IN main"] == [("`with.dots`",), ("db",)]
    assert results["SHOW NAMESPACES IN main.db"] == [("db.inner",)]
    described = results["DESCRIBE NAMESPACE EXTENDED main.db"]
    assert ("Properties", "((colour,blue), (size,big))") in described
    assert results["SHOW NAMESPACES IN main -- one dropped"] == [("db",)]
    assert results["SHOW NAMESPACES IN main -- none left"] == []


def test_refused_statements_have_the_right_errors(scenario: SparkScenario) -> None:
    results = scenario.results
    for statement, refused in {
        "CREATE NAMESPACE main.db": "[SCHEMA_ALREADY_EXISTS]",
        "CREATE NAMESPACE main.none.inner": "parent namespace 'none' does not exist",
        "DESCRIBE NAMESPACE main.none": "[SCHEMA_NOT_FOUND]",
        "DROP NAMESPACE main.db": "NamespaceNotEmptyException",
        "DROP NAMESPACE main.none": "[SCHEMA_NOT_FOUND]",
        "CREATE TABLE main.db.t (id BIGINT) USING iceberg": "[TABLE_OR_VIEW_ALREADY_EXISTS]",
        "CREATE TABLE main.none.t (id BIGINT) USING iceberg": "Namespace does not exist: none",
        "DROP NAMESPACE main.db -- with tables": "NamespaceNotEmptyException",
        "CREATE VIEW main.db.v AS SELECT 1": "[VIEW_ALREADY_EXISTS]",
        "ALTER TABLE main.db.extra RENAME TO db.inner.moved": "[TABLE_OR_VIEW_ALREADY_EXISTS]",
        "DROP TABLE main.db.extra -- again": "[TABLE_OR_VIEW_NOT_FOUND]",
    }.items():
        assert refused in results[statement], statement


def test_rows_are_read_as_they_were_written(scenario: SparkScenario) -> None:
    results = scenario.results
    assert results["SELECT * FROM main.db.t -- created"] == []
    assert results["SELECT * FROM main.db.t -- inserted"] == [(1, "one"), (2, "two")]
    assert results["SELECT * FROM main.db.t -- changed"] == [(1, "one", 5)]
    assert results["SELECT count(*) FROM main.db.t.snapshots"] == [(3,)]
    assert results["SELECT * FROM main.db.inner.copy"] == [(1,)]
    copy = ("db.inner", "copy", False)  # Iceberg also lists tables of nested namespaces.
    assert results["SHOW TABLES IN main.db"] == [("db", "t", False), copy]
    assert results["SHOW TABLES IN main.db.inner"] == [copy]


def test_changes_of_a_branch_are_not_visible_elsewhere_until_the_merge(
    scenario: SparkScenario,
) -> None:
    results = scenario.results
    assert results["SELECT * FROM dev.db.t -- ahead"] == [(1, "one", 5), (3, "three", 6)]
    assert results["SELECT * FROM main.db.t -- behind"] == [(1, "one", 5)]
    assert results["SHOW TABLES IN main.db -- behind"] == results["SHOW TABLES IN main.db"]
    assert results["SELECT * FROM main.db.t -- merged"] == [(1, "one", 5), (3, "three", 6)]
    assert results["SELECT * FROM main.db.extra -- merged"] == [(1,), (2,)]
    four = (4, "four", 7)
    assert results["SELECT * FROM main.db.t -- later"] == [(1, "one", 5), (3, "three", 6), four]
    assert results["SELECT * FROM dev.db.t -- later"] == [(1, "one", 5), (3, "three", 6)]


def test_the_past_can_be_read_but_not_written(scenario: SparkScenario) -> None:
    results = scenario.results
    merged = [(1, "one", 5), (3, "three", 6)]
    assert results["SELECT * FROM main.db.`t@dev` -- on another branch"] == merged
    assert results["SELECT * FROM main.db.`t@main#HASH` -- before the merge"] == [(1, "one", 5)]
    assert results["SELECT * FROM main.db.`t@main#HASH` -- after the merge"] == merged
    early = results["SELECT * FROM main.db.`extra@main#HASH` -- before it existed"]
    assert "[TABLE_OR_VIEW_NOT_FOUND]" in early
    absent = results["SELECT * FROM main.db.`t@none` -- on an unknown branch"]
    assert "Nessie ref 'none' does not exist" in absent
    written = results["INSERT INTO main.db.`t@main#HASH` VALUES (9, 'no', 9) -- into the past"]
    assert "You can only mutate" in written


def test_views_are_created_replaced_renamed_and_dropped(scenario: SparkScenario) -> None:
    results = scenario.results
    assert results["SELECT * FROM main.db.v"] == [("four",), ("three",)]
    assert results["SELECT * FROM main.db.v -- replaced"] == [(5,), (6,), (7,)]
    assert results["SHOW VIEWS IN main.db"] == [("db", "v", False)]
    assert results["SELECT * FROM main.db.w"] == [(5,), (6,), (7,)]
    assert results["SHOW VIEWS IN main.db -- dropped"] == []


def test_a_table_can_be_renamed_and_a_dropped_one_created_again(scenario: SparkScenario) -> None:
    results = scenario.results
    assert "[TABLE_OR_VIEW_NOT_FOUND]" in results["SELECT * FROM main.db.t -- moved"]
    assert (
        results["SELECT * FROM main.db.inner.moved"] == results["SELECT * FROM main.db.t -- later"]
    )
    assert results["SHOW TABLES IN main.db -- moved and dropped"] == [
        ("db.inner", "copy", False),
        ("db.inner", "moved", False),
    ]
    assert results["SELECT * FROM main.db.extra -- created again"] == [("created again",)]
    assert results["SELECT * FROM dev.db.extra -- unchanged"] == [(1,), (2,)]


def test_nessie_has_the_same_results_and_state(
    scenario: SparkScenario,
    run_scenario: Callable[[str, Rest, int], SparkScenario],
    nessie: Rest,
    api: int,
) -> None:
    expected = run_scenario("nessie", nessie, api)
    for statement, answer in expected.results.items():
        assert scenario.results[statement] == answer, statement
    assert scenario.stored_state() == expected.stored_state()

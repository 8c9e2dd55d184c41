"""Nessie's SQL extensions in Spark 3.5, through both versions of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.rest import Rest
from tests.interop.spark35_scenario import NessieSqlScenario
from tests.interop.spark35_session import newer_java, session
from tests.interop.spark_settings import catalog_settings
from tests.nessie.server import Server, rocksdb

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.spark35,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # PySpark leaves sockets open.
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning:pyspark.*"
    ),  # It is made for an older Python.
]


@pytest.fixture(scope="session")
def nessie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    directory = tmp_path_factory.mktemp("nessie")
    with newer_java():
        server = Server(rocksdb(directory / "data"), directory / "log", {})
    with server:
        yield Rest(server.address)


@pytest.fixture(scope="session")
def spark35(rest: Rest, nessie: Rest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("spark35")
    catalogs: dict[str, str] = {}
    for who, server in {"morag": rest, "nessie": nessie}.items():
        for api in (1, 2):
            name = f"{who}_v{api}"
            catalogs |= catalog_settings(name, server.address, api, directory / name, ref=name)
    with session(directory, catalogs) as spark:
        yield spark


@pytest.fixture(scope="session")
def scenario(spark35: Any, rest: Rest, api: int) -> NessieSqlScenario:
    return run_scenario(spark35, "morag", rest, api)


def run_scenario(spark: Any, who: str, rest: Rest, api: int) -> NessieSqlScenario:
    scenario = NessieSqlScenario(spark, rest, f"{who}_v{api}", f"{who}_v{api}_dev")
    scenario.run()
    return scenario


def test_references_are_created_listed_assigned_and_dropped(scenario: NessieSqlScenario) -> None:
    results = scenario.results
    begin = scenario.rows("CREATE BRANCH dev IN main FROM main")[0][2]
    again = "NessieReferenceAlreadyExistsException: Named reference 'dev' already exists."
    assert results["CREATE BRANCH dev IN main FROM main -- again"] == again
    assert results["CREATE BRANCH IF NOT EXISTS dev IN main FROM main"] == [
        ("Branch", "dev", begin)
    ]
    assert results["LIST REFERENCES IN main"] == [
        ("Branch", "main", begin),
        ("Branch", "dev", begin),
        ("Branch", "dev/2", begin),
        ("Tag", "dev_tag", begin),
    ]
    end = scenario.rows("USE REFERENCE main IN main -- at the end")[0][2]
    assert results["ASSIGN BRANCH dev TO main IN main"] == [("Branch", "dev", end)]
    assert results["DROP TAG dev_tag IN main"] == [("OK",)]
    assert results["DROP TAG IF EXISTS dev_tag IN main"] == [("OK",)]
    assert results["LIST REFERENCES IN main -- at the end"] == [
        ("Branch", "main", end),
        ("Branch", "dev", end),
        ("Branch", "dev/2", begin),
    ]


def test_missing_references_have_the_right_errors(scenario: NessieSqlScenario) -> None:
    for statement in (
        "CREATE BRANCH dev_of_none IN main FROM none",
        "USE REFERENCE none IN main",
        "MERGE BRANCH none INTO main IN main",
        "ASSIGN BRANCH dev TO none IN main",
    ):
        absent = "NessieReferenceNotFoundException: Named reference 'none' not found"
        assert scenario.results[statement] == absent, statement


def test_changes_of_a_branch_are_not_visible_elsewhere_until_the_merge(
    scenario: NessieSqlScenario,
) -> None:
    results, both = scenario.results, [(1, "one"), (2, "two")]
    assert results["SHOW REFERENCE IN main"] == results["USE REFERENCE dev IN main"]
    assert results["SELECT * FROM main.db.t -- on dev"] == both
    assert "[TABLE_OR_VIEW_NOT_FOUND]" in results["SELECT * FROM main.db.t -- on main"]
    assert results["SELECT * FROM main.db.`t@dev`"] == both
    assert results["SELECT * FROM main.db.t -- merged"] == both
    assert results["SELECT * FROM main.db.`t@dev` -- assigned"] == [*both, (3, "on main")]


def test_a_merge_returns_its_commit_or_the_conflict(scenario: NessieSqlScenario) -> None:
    ((name, merged),) = scenario.rows("MERGE BRANCH dev INTO main IN main")
    assert name == "main"
    assert scenario.rows("SHOW LOG main IN main")[0][2] == merged
    assert scenario.results["MERGE BRANCH dev INTO main IN main -- with a conflict"] == (
        "NessieReferenceConflictException: The following keys have been changed in conflict: 'db.t'"
    )


def test_a_log_has_its_newest_commit_first(scenario: NessieSqlScenario) -> None:
    log = scenario.rows("SHOW LOG dev IN main")
    append, created = (
        "Iceberg append against db.t",
        "Iceberg table created/registered with name db.t",
    )
    assert [row[3] for row in log] == [append, append, created, "begin"]
    assert log[0][7]["iceberg.operation"] == "append"
    assert scenario.results["SHOW LOG IN main -- of the reference in use"] == log


def test_the_past_can_be_read_but_not_written(scenario: NessieSqlScenario) -> None:
    results = scenario.results
    assert "[TABLE_OR_VIEW_NOT_FOUND]" in results["SELECT * FROM main.db.t -- before the merge"]
    assert results["SELECT * FROM main.db.t -- after the merge"] == [(1, "one"), (2, "two")]
    written = results["INSERT INTO main.db.t VALUES (4, 'into a tag')"]
    assert "You can only mutate" in written


def test_nessie_has_the_same_results_and_state(
    scenario: NessieSqlScenario, spark35: Any, nessie: Rest, api: int
) -> None:
    expected = run_scenario(spark35, "nessie", nessie, api)
    assert scenario.results.keys() == expected.results.keys()
    for statement, answer in expected.results.items():
        assert scenario.results[statement] == answer, statement
    assert scenario.stored_state() == expected.stored_state()

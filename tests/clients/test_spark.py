"""Spark with Iceberg's NessieCatalog, through both versions of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.catalogs import add_catalog
from tests.clients.spark_story import Story

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.clients.rest import Rest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Of the sockets to its JVM.
]


@pytest.fixture(scope="session")
def tell(
    iceberg: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, Rest, int], Story]:
    directory = tmp_path_factory.mktemp("warehouses")

    def tell(who: str, rest: Rest, api: int) -> Story:
        main, dev = f"{who}_v{api}", f"{who}_v{api}_dev"
        for branch in (main, dev):
            add_catalog(iceberg, branch, rest.address, api, directory / main, ref=branch)
        story = Story(iceberg, rest, main, dev)
        story.tell()
        return story

    return tell


@pytest.fixture(scope="session", params=[1, 2], ids=["v1", "v2"])
def api(request: pytest.FixtureRequest) -> int:
    api: int = request.param
    return api


@pytest.fixture(scope="session")
def story(tell: Callable[[str, Rest, int], Story], rest: Rest, api: int) -> Story:
    return tell("morag", rest, api)


def test_namespaces_are_made_changed_listed_and_dropped(story: Story) -> None:
    said = story.said
    assert said["SHOW NAMESPACES IN main"] == [("`with.dots`",), ("db",)]
    assert said["SHOW NAMESPACES IN main.db"] == [("db.inner",)]
    described = said["DESCRIBE NAMESPACE EXTENDED main.db"]
    assert ("Properties", "((colour,blue), (size,big))") in described
    assert said["SHOW NAMESPACES IN main -- one dropped"] == [("db",)]
    assert said["SHOW NAMESPACES IN main -- none left"] == []


def test_what_the_server_refuses_is_the_right_error(story: Story) -> None:
    said = story.said
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
        assert refused in said[statement], statement


def test_rows_are_read_as_they_were_written(story: Story) -> None:
    said = story.said
    assert said["SELECT * FROM main.db.t -- created"] == []
    assert said["SELECT * FROM main.db.t -- inserted"] == [(1, "one"), (2, "two")]
    assert said["SELECT * FROM main.db.t -- changed"] == [(1, "one", 5)]
    assert said["SELECT count(*) FROM main.db.t.snapshots"] == [(3,)]
    assert said["SELECT * FROM main.db.inner.copy"] == [(1,)]
    copy = ("db.inner", "copy", False)  # Iceberg lists what is further below, too.
    assert said["SHOW TABLES IN main.db"] == [("db", "t", False), copy]
    assert said["SHOW TABLES IN main.db.inner"] == [copy]


def test_a_branch_keeps_to_itself_until_it_is_merged(story: Story) -> None:
    said = story.said
    assert said["SELECT * FROM dev.db.t -- ahead"] == [(1, "one", 5), (3, "three", 6)]
    assert said["SELECT * FROM main.db.t -- behind"] == [(1, "one", 5)]
    assert said["SHOW TABLES IN main.db -- behind"] == said["SHOW TABLES IN main.db"]
    assert said["SELECT * FROM main.db.t -- merged"] == [(1, "one", 5), (3, "three", 6)]
    assert said["SELECT * FROM main.db.extra -- merged"] == [(1,), (2,)]
    four = (4, "four", 7)
    assert said["SELECT * FROM main.db.t -- later"] == [(1, "one", 5), (3, "three", 6), four]
    assert said["SELECT * FROM dev.db.t -- later"] == [(1, "one", 5), (3, "three", 6)]


def test_the_past_can_be_read_but_not_written(story: Story) -> None:
    said = story.said
    merged = [(1, "one", 5), (3, "three", 6)]
    assert said["SELECT * FROM main.db.`t@dev` -- on another branch"] == merged
    assert said["SELECT * FROM main.db.`t@main#HASH` -- before the merge"] == [(1, "one", 5)]
    assert said["SELECT * FROM main.db.`t@main#HASH` -- after the merge"] == merged
    early = said["SELECT * FROM main.db.`extra@main#HASH` -- before it was there"]
    assert "[TABLE_OR_VIEW_NOT_FOUND]" in early
    absent = said["SELECT * FROM main.db.`t@none` -- on a branch that is not there"]
    assert "Nessie ref 'none' does not exist" in absent
    written = said["INSERT INTO main.db.`t@main#HASH` VALUES (9, 'no', 9) -- into the past"]
    assert "You can only mutate" in written


def test_views_are_made_replaced_renamed_and_dropped(story: Story) -> None:
    said = story.said
    assert said["SELECT * FROM main.db.v"] == [("four",), ("three",)]
    assert said["SELECT * FROM main.db.v -- replaced"] == [(5,), (6,), (7,)]
    assert said["SHOW VIEWS IN main.db"] == [("db", "v", False)]
    assert said["SELECT * FROM main.db.w"] == [(5,), (6,), (7,)]
    assert said["SHOW VIEWS IN main.db -- dropped"] == []


def test_a_table_moves_and_a_dropped_one_can_be_made_anew(story: Story) -> None:
    said = story.said
    assert "[TABLE_OR_VIEW_NOT_FOUND]" in said["SELECT * FROM main.db.t -- moved"]
    assert said["SELECT * FROM main.db.inner.moved"] == said["SELECT * FROM main.db.t -- later"]
    assert said["SHOW TABLES IN main.db -- moved and dropped"] == [
        ("db.inner", "copy", False),
        ("db.inner", "moved", False),
    ]
    assert said["SELECT * FROM main.db.extra -- made anew"] == [("made anew",)]
    assert said["SELECT * FROM dev.db.extra -- as it was"] == [(1,), (2,)]


def test_the_original_answers_and_holds_the_same(
    story: Story, tell: Callable[[str, Rest, int], Story], original: Rest, api: int
) -> None:
    theirs = tell("original", original, api)
    for statement, answer in theirs.said.items():
        assert story.said[statement] == answer, statement
    assert story.held() == theirs.held()

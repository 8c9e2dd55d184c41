"""Nessie's SQL extensions in Spark 3.5, through both versions of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.catalogs import catalog
from tests.clients.conftest import Original
from tests.clients.rest import Rest
from tests.clients.spark35 import newer_java, session
from tests.clients.spark35_story import SqlStory
from tests.original.server import rocksdb

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.spark35,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Of the sockets to its JVM.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark.*"),  # Of an older Python.
]


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    directory = tmp_path_factory.mktemp("original")
    with newer_java():
        server = Original(rocksdb(directory / "data"), directory / "log", {})
    with server:
        yield Rest(server.address)


@pytest.fixture(scope="session")
def spark35(rest: Rest, original: Rest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("spark35")
    catalogs: dict[str, str] = {}
    for who, server in {"morag": rest, "original": original}.items():
        for api in (1, 2):
            name = f"{who}_v{api}"
            catalogs |= catalog(name, server.address, api, directory / name, ref=name)
    with session(directory, catalogs) as spark:
        yield spark


@pytest.fixture(scope="session", params=[1, 2], ids=["v1", "v2"])
def api(request: pytest.FixtureRequest) -> int:
    api: int = request.param
    return api


@pytest.fixture(scope="session")
def story(spark35: Any, rest: Rest, api: int) -> SqlStory:
    return told(spark35, "morag", rest, api)


def told(spark: Any, who: str, rest: Rest, api: int) -> SqlStory:
    story = SqlStory(spark, rest, f"{who}_v{api}", f"{who}_v{api}_dev")
    story.tell()
    return story


def test_references_are_made_listed_assigned_and_dropped(story: SqlStory) -> None:
    said = story.said
    begin = story.rows("CREATE BRANCH dev IN main FROM main")[0][2]
    again = "NessieReferenceAlreadyExistsException: Named reference 'dev' already exists."
    assert said["CREATE BRANCH dev IN main FROM main -- again"] == again
    assert said["CREATE BRANCH IF NOT EXISTS dev IN main FROM main"] == [("Branch", "dev", begin)]
    assert said["LIST REFERENCES IN main"] == [
        ("Branch", "main", begin),
        ("Branch", "dev", begin),
        ("Branch", "dev/2", begin),
        ("Tag", "dev_tag", begin),
    ]
    end = story.rows("USE REFERENCE main IN main -- at last")[0][2]
    assert said["ASSIGN BRANCH dev TO main IN main"] == [("Branch", "dev", end)]
    assert said["DROP TAG dev_tag IN main"] == [("OK",)]
    assert said["DROP TAG IF EXISTS dev_tag IN main"] == [("OK",)]
    assert said["LIST REFERENCES IN main -- at last"] == [
        ("Branch", "main", end),
        ("Branch", "dev", end),
        ("Branch", "dev/2", begin),
    ]


def test_what_is_not_there_is_the_right_error(story: SqlStory) -> None:
    for statement in (
        "CREATE BRANCH dev_of_none IN main FROM none",
        "USE REFERENCE none IN main",
        "MERGE BRANCH none INTO main IN main",
        "ASSIGN BRANCH dev TO none IN main",
    ):
        absent = "NessieReferenceNotFoundException: Named reference 'none' not found"
        assert story.said[statement] == absent, statement


def test_work_on_a_branch_is_seen_there_until_it_is_merged(story: SqlStory) -> None:
    said, both = story.said, [(1, "one"), (2, "two")]
    assert said["SHOW REFERENCE IN main"] == said["USE REFERENCE dev IN main"]
    assert said["SELECT * FROM main.db.t -- on dev"] == both
    assert "[TABLE_OR_VIEW_NOT_FOUND]" in said["SELECT * FROM main.db.t -- on main"]
    assert said["SELECT * FROM main.db.`t@dev`"] == both
    assert said["SELECT * FROM main.db.t -- merged"] == both
    assert said["SELECT * FROM main.db.`t@dev` -- assigned"] == [*both, (3, "on main")]


def test_a_merge_tells_its_commit_or_what_is_in_the_way(story: SqlStory) -> None:
    ((name, merged),) = story.rows("MERGE BRANCH dev INTO main IN main")
    assert name == "main"
    assert story.rows("SHOW LOG main IN main")[0][2] == merged
    assert story.said["MERGE BRANCH dev INTO main IN main -- with a conflict"] == (
        "NessieReferenceConflictException: The following keys have been changed in conflict: 'db.t'"
    )


def test_a_log_has_its_newest_commit_first(story: SqlStory) -> None:
    log = story.rows("SHOW LOG dev IN main")
    append, created = (
        "Iceberg append against db.t",
        "Iceberg table created/registered with name db.t",
    )
    assert [row[3] for row in log] == [append, append, created, "begin"]
    assert log[0][7]["iceberg.operation"] == "append"
    assert story.said["SHOW LOG IN main -- of the reference in use"] == log


def test_the_past_can_be_read_but_not_written(story: SqlStory) -> None:
    said = story.said
    assert "[TABLE_OR_VIEW_NOT_FOUND]" in said["SELECT * FROM main.db.t -- before the merge"]
    assert said["SELECT * FROM main.db.t -- as it was merged"] == [(1, "one"), (2, "two")]
    written = said["INSERT INTO main.db.t VALUES (4, 'into a tag')"]
    assert "You can only mutate" in written


def test_the_original_answers_and_holds_the_same(
    story: SqlStory, spark35: Any, original: Rest, api: int
) -> None:
    theirs = told(spark35, "original", original, api)
    assert story.said.keys() == theirs.said.keys()
    for statement, answer in theirs.said.items():
        assert story.said[statement] == answer, statement
    assert story.held() == theirs.held()

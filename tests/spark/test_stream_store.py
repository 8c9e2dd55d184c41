"""Streams of a store without a server, called as Spark calls them."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

import morag
from morag import ContentKey, Put
from morag.spark.opening import Origin
from morag.spark.source.schemas import schema_of
from morag.spark.source.sink import CommitWriter
from morag.spark.source.stream import CommitStream
from tests.spark.scratch_branch import table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from morag import Repository


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'catalog.db'}?sync=off"


@pytest.fixture
def repository(store: str) -> Iterator[Repository]:
    with morag.open(store) as repository:
        yield repository


def commit(repository: Repository, *messages: str) -> None:
    for message in messages:
        repository.commit("main", [Put(ContentKey.of(message), table(1))], message)


def stream(store: str, **options: str) -> CommitStream:
    return CommitStream(Origin(store=store), {"table": "log", **options}, schema_of("log"))


def read(stream: CommitStream, start: dict[str, str], end: dict[str, str]) -> list[list[str]]:
    """The messages of each partition."""
    return [
        [text for batch in stream.read(part) for text in batch.column("message").to_pylist()]
        for part in stream.partitions(start, end)
    ]


def test_many_commits_are_read_in_parts(store: str, repository: Repository) -> None:
    made = [f"c{n}" for n in range(2100)]
    commit(repository, *made)
    whole = stream(store)
    parts = read(whole, whole.initialOffset(), whole.latestOffset())
    assert [message for part in parts for message in part] == made
    assert [len(part) for part in parts] == [1000, 1000, 100]
    assert whole.partitions(whole.latestOffset(), whole.latestOffset()) == []


def test_max_commits_holds_while_the_branch_grows(store: str, repository: Repository) -> None:
    commit(repository, "a", "b", "c")
    limited = stream(store, max_commits="2")
    at, taken = limited.initialOffset(), []
    for more in ("d", "e", "f", "g"):
        end = limited.latestOffset()
        taken += read(limited, at, end)
        commit(repository, more)
        at = end
    assert taken == [["a", "b"], ["c", "d"], ["e"], ["f"]]


def test_another_process_repeats_a_batch(store: str, repository: Repository) -> None:
    commit(repository, "a", "b")
    first = stream(store)
    start, end = first.initialOffset(), first.latestOffset()
    commit(repository, "c")
    again = stream(store)
    assert again.partitions(end, end) == []  # Spark passes the last position.
    assert read(again, start, end) == [["a", "b"]]
    assert read(again, end, again.latestOffset()) == [["c"]]


def test_a_reader_can_be_pickled(store: str, repository: Repository) -> None:
    commit(repository, "a")
    sent: Any = pickle.loads(pickle.dumps(stream(store)))
    assert read(sent, sent.initialOffset(), sent.latestOffset()) == [["a"]]


def test_rows_are_committed_to_a_store(store: str, repository: Repository) -> None:
    schema = StructType([StructField("key", ArrayType(StringType()))])
    writer = CommitWriter(Origin(store=store), {"message": "m"}, schema, overwrite=False)
    rows = [Row(key=["a"], metadata_location="s3://a"), Row(key=["b"], metadata_location="s3://b")]
    writer.commit([writer.write(iter(rows[:1])), None, writer.write(iter(rows[1:]))])
    assert [str(key) for key in repository.contents.keys("main")] == ["a", "b"]
    assert [entry.meta.message for entry in repository.history.log("main")] == ["m"]

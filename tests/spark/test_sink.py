"""Rows become commits, and a batch that Spark repeats becomes none."""

from __future__ import annotations

import json
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

import morag
from morag import (
    CommitMeta,
    ContentKey,
    Delete,
    MoragError,
    Namespace,
    Put,
    ReferenceConflict,
)
from morag.client import Client, OutcomeUnknown
from morag.client.places import NO_ANCESTOR
from morag.spark import CannotRun
from morag.spark.opening import Origin
from morag.spark.source.once import BATCH, QUERY, Batch, commit_once, is_committed
from morag.spark.source.operations import Wish, operations_of, wish_of
from morag.spark.source.sink import CommitWriter
from tests.spark.branches import Branch, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from morag.client import CommitResult
    from morag.model.listed import LogEntry
    from morag.model.operations import Operation
    from tests.serving import Served

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # Of the sockets to the JVM.

_COLUMNS = "key array<string>, operation string, metadata_location string, snapshot_id long"


def rows(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), _COLUMNS)


def write(df: DataFrame, branch: Branch, mode: str = "append", **options: str) -> None:
    df.write.format("morag").mode(mode).options(**branch.options, **options).save()


def held(branch: Branch) -> dict[str, str]:
    found = branch.client.contents.entries(branch.name, with_content=True)
    return {str(entry.key): getattr(entry.content, "metadata_location", "") for entry in found}


def test_rows_are_one_commit(spark: SparkSession, branch: Branch) -> None:
    write(
        rows(spark, (["a"], "PUT", "s3://a/1", 1), (["b"], None, "s3://b/1", 2)).repartition(2),
        branch,
        message="both",
        author="Ada",
    )
    assert held(branch) == {"a": "s3://a/1", "b": "s3://b/1"}
    (entry,) = branch.log()
    assert (entry.meta.message, entry.meta.authors) == ("both", ("Ada",))
    was = branch.client.contents.get(branch.name, ContentKey.of("a"))

    write(rows(spark, (["a"], "put", "s3://a/2", 3), (["b"], "DELETE", None, None)), branch)
    assert held(branch) == {"a": "s3://a/2"}
    now = branch.client.contents.get(branch.name, ContentKey.of("a"))
    assert now.id == was.id  # It is the same table, at another place.
    assert branch.messages() == ["both", "Spark: 2 changes"]


def test_no_rows_are_no_commit(spark: SparkSession, branch: Branch) -> None:
    write(rows(spark), branch)
    assert branch.head == NO_ANCESTOR


def test_a_write_that_names_itself_is_done_once(spark: SparkSession, branch: Branch) -> None:
    one, two = (rows(spark, (["a"], "PUT", f"s3://a/{n}", n)) for n in (1, 2))
    write(one, branch, query="nightly", batch="7")
    write(two, branch, query="nightly", batch="7")
    assert held(branch) == {"a": "s3://a/1"}
    write(two, branch, query="nightly", batch="8")
    assert held(branch) == {"a": "s3://a/2"}
    write(one, branch, query="nightly", batch="7")
    assert held(branch) == {"a": "s3://a/2"}


def test_a_write_can_be_told_what_it_was_based_on(spark: SparkSession, branch: Branch) -> None:
    (first,) = branch.commit("a")
    change = rows(spark, (["a"], "PUT", "s3://a/mine", 1))
    there = branch.client.contents.get(branch.name, ContentKey.of("a"))
    theirs = morag.replace(table(5), id=there.id)
    branch.client.commit(branch.name, [Put(ContentKey.of("a"), theirs)], "somebody else")
    with pytest.raises(PySparkException, match="ReferenceConflict"):
        write(change, branch, expected=first)
    assert branch.messages() == ["a", "somebody else"]
    write(change, branch, expected=branch.head)
    assert held(branch) == {"a": "s3://a/mine"}


class Stream:
    """A stream of files into a branch, which runs until all files are read."""

    def __init__(self, spark: SparkSession, branch: Branch, directory: Path) -> None:
        self._spark = spark
        self._branch = branch
        self._input = directory / "input"
        self._input.mkdir()
        self._checkpoint = directory / "checkpoint"

    def add(self, name: str, *rows: dict[str, Any]) -> None:
        text = "\n".join(json.dumps(row) for row in rows)
        half = self._input / f".{name}"  # Spark leaves it alone.
        half.write_text(text)
        half.rename(self._input / f"{name}.json")

    def run(self) -> str:
        """Returns the id of the query."""
        stream = self._spark.readStream.schema(_COLUMNS).json(str(self._input))
        writer = stream.writeStream.format("morag").options(**self._branch.options)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return str(query.id)

    def forget_end_of(self, batch: int) -> None:
        """As if the driver had died after the commit, before it could write that down."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self._checkpoint / "commits" / name).unlink()


def test_a_batch_is_a_commit_and_a_repeated_batch_is_none(
    spark: SparkSession, branch: Branch, tmp_path: Path
) -> None:
    stream = Stream(spark, branch, tmp_path)
    stream.add("0", {"key": ["a"], "metadata_location": "s3://a/0"})
    query = stream.run()
    (entry,) = branch.log()
    assert entry.meta.properties == {QUERY: (query,), BATCH: ("0",)}
    stream.forget_end_of(0)
    branch.commit("other")  # Others do not wait until a driver is back.
    assert stream.run() == query
    assert branch.messages() == ["Spark: 1 change", "other"]

    stream.add("1", {"key": ["a"], "metadata_location": "s3://a/1"})
    stream.run()
    stream.forget_end_of(1)
    stream.run()
    assert branch.messages() == ["Spark: 1 change", "other", "Spark: 1 change"]
    assert held(branch)["a"] == "s3://a/1"


def test_a_batch_of_which_nothing_was_committed_is_repeated(
    spark: SparkSession, branch: Branch, tmp_path: Path
) -> None:
    stream = Stream(spark, branch, tmp_path)
    stream.add("0", {"key": ["sales", "a"], "metadata_location": "s3://a/0"})
    with pytest.raises(PySparkException, match="Namespace 'sales' must exist"):
        stream.run()
    sales = Put(ContentKey.of("sales"), Namespace.of("sales"))
    branch.client.commit(branch.name, [sales], "make room")
    stream.run()
    assert held(branch) == {"sales": "", "sales.a": "s3://a/0"}


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        ("key string", {}, "column 'key' of type array<string>"),
        ("key array<int>", {}, "column 'key' of type array<string>"),
        ("keys array<string>", {}, "column 'key' of type array<string>"),
        ("key array<string>, operaton string", {}, "Column 'operaton'.*means nothing"),
        ("key array<string>, sequence double", {}, "'sequence' must be of whole numbers"),
        ("key array<string>", {"mesage": "x"}, "A write has no option 'mesage'"),
        ("key array<string>", {"query": "x"}, "'query' and 'batch' go together"),
        ("key array<string>", {"ref": "main@11223344"}, "Reference name must"),
    ],
)
def test_columns_and_options_that_cannot_be_right_are_refused(
    spark: SparkSession, served: Served, columns: str, options: dict[str, str], told: str
) -> None:
    all = {"uri": served.url, **options}
    schema = StructType.fromDDL(columns)  # By Spark, which is there.
    assert isinstance(schema, StructType)
    with pytest.raises(MoragError, match=told):
        CommitWriter(Origin.of(all), all, schema, overwrite=False)


def test_a_password_that_spark_would_show_is_refused(spark: SparkSession) -> None:
    options = {"store": "paper://ada:hush@127.0.0.1/catalog"}
    schema = StructType.fromDDL("key array<string>")
    assert isinstance(schema, StructType)
    with pytest.raises(CannotRun, match="by 'store_file'") as error:
        CommitWriter(Origin.of(options), options, schema, overwrite=False)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"key": ["a"]}, "Key 'a': this is no content"),
        ({"key": ["a"], "content": "{}"}, "Key 'a': this is no content"),
        ({"key": ["a"], "operation": "RENAME"}, "must be PUT or DELETE"),
        ({"key": [], "operation": "DELETE"}, "Content key must not be empty"),
        ({"key": None, "operation": "DELETE"}, "Content key must not be empty"),
    ],
)
def test_rows_that_cannot_be_right_are_refused(row: dict[str, Any], told: str) -> None:
    with pytest.raises(MoragError, match=told):
        wish_of(row)


def test_what_is_on_the_branch_is_never_overwritten(spark: SparkSession, branch: Branch) -> None:
    with pytest.raises(PySparkException, match="adds a commit and replaces no others"):
        write(rows(spark), branch, "overwrite")


def test_rows_say_all_kinds_of_content() -> None:
    udf = '{"type": "UDF", "sqlText": "1", "dialect": "spark"}'
    assert wish_of({"key": ["f"], "content": udf}).operation.key == ContentKey.of("f")
    view = {"key": ["v"], "content_type": "ICEBERG_VIEW", "metadata_location": "s3://v"}
    wish = wish_of({**view, "version_id": 3, "schema_id": 0, "CONTENT_ID": "x"}).operation
    assert isinstance(wish, Put)
    assert (wish.content.id, getattr(wish.content, "version_id", None)) == ("x", 3)
    plain = wish_of({"key": ["t"], "metadata_location": "s3://t"}).operation
    assert isinstance(plain, Put)
    assert getattr(plain.content, "snapshot_id", None) == -1  # A table without data.


def test_of_several_rows_for_a_key_the_highest_sequence_counts() -> None:
    key = ContentKey.of("a")
    first, second = Put(key, table(1)), Put(key, table(2))
    gone = Delete(ContentKey.of("b"))
    wishes = [Wish(5, second), Wish(None, gone), Wish(4, first)]
    assert operations_of(wishes) == operations_of(wishes[::-1]) == [second, gone]
    for other in (None, 5):
        with pytest.raises(CannotRun, match="Key 'a' is in the batch more than once"):
            operations_of([Wish(5, second), Wish(other, first)])


class Deaf:
    """A catalog whose answers to commits are lost, or come when it is too late."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name = client, name
        self.references, self.contents, self.history = (
            client.references,
            client.contents,
            client.history,
        )
        self.lost = Event()

    def commit(
        self, branch: str, operations: Sequence[Operation], meta: CommitMeta, *, expected: str
    ) -> CommitResult:
        result = self._client.commit(branch, operations, meta, expected=expected)
        if not self.lost.is_set():
            self.lost.set()
            raise OutcomeUnknown("the answer was lost")
        return result


def test_a_commit_whose_answer_was_lost_is_looked_for(branch: Branch) -> None:
    deaf: Any = Deaf(branch.client, branch.name)
    change = [Put(ContentKey.of("a"), table(1))]
    assert commit_once(deaf, branch.name, change, CommitMeta(message="m"), Batch("q", 0)) is None
    assert branch.messages() == ["m"]
    deaf.lost.clear()
    with pytest.raises(OutcomeUnknown):  # Without a mark nobody can tell.
        commit_once(deaf, branch.name, change, CommitMeta(message="n"), None)


def test_the_same_batch_by_a_process_that_was_thought_dead_is_one_commit(branch: Branch) -> None:
    """It commits after the other has looked, and before that one commits."""
    change = [Put(ContentKey.of("a"), table(1))]
    meta, batch = CommitMeta(message="m"), Batch("q", 0)

    class Slow(Deaf):
        def commit(
            self, branch: str, operations: Sequence[Operation], meta: CommitMeta, *, expected: str
        ) -> CommitResult:
            if not self.lost.is_set():
                self.lost.set()
                commit_once(self._client, branch, change, CommitMeta(message="m"), batch)
            return self._client.commit(branch, operations, meta, expected=expected)

    slow: Any = Slow(branch.client, branch.name)
    assert commit_once(slow, branch.name, change, meta, batch) is None
    assert branch.messages() == ["m"]


def test_others_that_are_faster_are_not_in_the_way(branch: Branch) -> None:
    change = [Put(ContentKey.of("a"), table(7))]

    class Crowded(Deaf):
        def commit(
            self, branch: str, operations: Sequence[Operation], meta: CommitMeta, *, expected: str
        ) -> CommitResult:
            if not self.lost.is_set():
                self.lost.set()
                self._client.commit(branch, [Put(ContentKey.of("a"), table(1))], "others")
            return self._client.commit(branch, operations, meta, expected=expected)

    crowded: Any = Crowded(branch.client, branch.name)
    meta = CommitMeta(message="m")
    assert commit_once(crowded, branch.name, change, meta, Batch("q", 0)) == branch.head
    assert branch.messages() == ["others", "m"]
    with pytest.raises(ReferenceConflict):  # It is wrong, however often it is tried.
        commit_once(
            branch.client, branch.name, [Delete(ContentKey.of("none"))], meta, Batch("q", 1)
        )


def test_a_batch_is_looked_for_down_to_the_one_before_it(branch: Branch) -> None:
    for query, number in [("q", 1), ("other", 5), ("q", 3), ("other", 6)]:
        meta = Batch(query, number).marked(CommitMeta(message=f"{query} {number}"))
        change = [Put(ContentKey.of(f"{query}{number}"), table(number))]
        branch.client.commit(branch.name, change, meta)
    found = [n for n in range(8) if is_committed(branch.client, branch.head, Batch("q", n))]
    assert found == [1, 3]
    assert not is_committed(branch.client, NO_ANCESTOR, Batch("q", 1))


@pytest.mark.parametrize("number", [(), ("one",), ("1", "2")])
def test_commits_that_only_look_like_batches_are_passed_over(
    branch: Branch, number: tuple[str, ...]
) -> None:
    branch.client.commit(
        branch.name,
        [Put(ContentKey.of("a"), table(1))],
        Batch("q", 1).marked(CommitMeta(message="ours")),
    )
    properties = {QUERY: ("q",), **({BATCH: number} if number else {})}
    theirs = CommitMeta(message="theirs", properties=properties)
    branch.client.commit(branch.name, [Put(ContentKey.of("b"), table(1))], theirs)
    found = [n for n in range(3) if is_committed(branch.client, branch.head, Batch("q", n))]
    assert found == [1]


def test_a_long_log_is_searched_once_however_many_tries_it_takes(branch: Branch) -> None:
    branch.commit(*"abcdef")

    class Counting(Deaf):
        """Others commit to the same key before the first try."""

        def __init__(self, client: Client, name: str) -> None:
            super().__init__(client, name)
            self.history: Any = self
            self.seen: list[list[str]] = []

        def log(self, at: str, until: str | None = None) -> Iterator[LogEntry]:
            self.seen.append([])
            for entry in self._client.history.log(at, until=until):
                self.seen[-1].append(entry.meta.message)
                yield entry

        def commit(
            self, branch: str, operations: Sequence[Operation], meta: CommitMeta, *, expected: str
        ) -> CommitResult:
            if not self.lost.is_set():
                self.lost.set()
                self._client.commit(branch, [Put(ContentKey.of("x"), table(1))], "others")
            return self._client.commit(branch, operations, meta, expected=expected)

    counting: Any = Counting(branch.client, branch.name)
    change = [Put(ContentKey.of("x"), table(7))]
    commit_once(counting, branch.name, change, CommitMeta(message="m"), Batch("q", 0))
    assert counting.seen == [list("fedcba"), ["others", "f"]]

"""Rows become commits, and a batch that Spark repeats is committed once."""

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
from morag.model.names import NO_ANCESTOR_HASH
from morag.spark import CannotRun
from morag.spark.opening import Origin
from morag.spark.source.exactly_once import BATCH, QUERY, Batch, commit_once, is_committed
from morag.spark.source.operations import SequencedOperation, operations_of, sequenced_operation
from morag.spark.source.sink import CommitWriter
from tests.spark.scratch_branch import Branch, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from morag.client import CommitResult
    from morag.model.operations import Operation
    from morag.model.results import LogEntry
    from tests.server_process import Served

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # PySpark leaves sockets open.

_COLUMNS = "key array<string>, operation string, metadata_location string, snapshot_id long"


def rows(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), _COLUMNS)


def write(df: DataFrame, branch: Branch, mode: str = "append", **options: str) -> None:
    df.write.format("morag").mode(mode).options(**branch.options, **options).save()


def held(branch: Branch) -> dict[str, str]:
    found = branch.client.contents.entries(branch.name, with_content=True)
    return {str(entry.key): getattr(entry.content, "metadata_location", "") for entry in found}


def test_rows_become_one_commit(spark: SparkSession, branch: Branch) -> None:
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
    assert now.id == was.id  # It is the same table with new metadata.
    assert branch.messages() == ["both", "Spark: 2 changes"]


def test_a_write_without_rows_makes_no_commit(spark: SparkSession, branch: Branch) -> None:
    write(rows(spark), branch)
    assert branch.head == NO_ANCESTOR_HASH


def test_a_write_with_query_and_batch_is_done_once(spark: SparkSession, branch: Branch) -> None:
    one, two = (rows(spark, (["a"], "PUT", f"s3://a/{n}", n)) for n in (1, 2))
    write(one, branch, query="nightly", batch="7")
    write(two, branch, query="nightly", batch="7")
    assert held(branch) == {"a": "s3://a/1"}
    write(two, branch, query="nightly", batch="8")
    assert held(branch) == {"a": "s3://a/2"}
    write(one, branch, query="nightly", batch="7")
    assert held(branch) == {"a": "s3://a/2"}


def test_a_write_with_an_expected_hash_fails_if_its_keys_changed(
    spark: SparkSession, branch: Branch
) -> None:
    (first,) = branch.commit("a")
    change = rows(spark, (["a"], "PUT", "s3://a/mine", 1))
    stored = branch.client.contents.get(branch.name, ContentKey.of("a"))
    changed = morag.replace(table(5), id=stored.id)
    branch.client.commit(branch.name, [Put(ContentKey.of("a"), changed)], "concurrent")
    with pytest.raises(PySparkException, match="ReferenceConflict"):
        write(change, branch, expected=first)
    assert branch.messages() == ["a", "concurrent"]
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
        half = self._input / f".{name}"  # Spark ignores hidden files.
        half.write_text(text)
        half.rename(self._input / f"{name}.json")

    def run(self) -> str:
        """Run until all files are read; return the id of the query."""
        stream = self._spark.readStream.schema(_COLUMNS).json(str(self._input))
        writer = stream.writeStream.format("morag").options(**self._branch.options)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return str(query.id)

    def forget_end_of(self, batch: int) -> None:
        """Make the checkpoint look as if the driver had died right after the commit."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self._checkpoint / "commits" / name).unlink()


def test_a_batch_becomes_one_commit_even_if_it_is_repeated(
    spark: SparkSession, branch: Branch, tmp_path: Path
) -> None:
    stream = Stream(spark, branch, tmp_path)
    stream.add("0", {"key": ["a"], "metadata_location": "s3://a/0"})
    query = stream.run()
    (entry,) = branch.log()
    assert entry.meta.properties == {QUERY: (query,), BATCH: ("0",)}
    stream.forget_end_of(0)
    branch.commit("other")  # A concurrent commit while the driver is down.
    assert stream.run() == query
    assert branch.messages() == ["Spark: 1 change", "other"]

    stream.add("1", {"key": ["a"], "metadata_location": "s3://a/1"})
    stream.run()
    stream.forget_end_of(1)
    stream.run()
    assert branch.messages() == ["Spark: 1 change", "other", "Spark: 1 change"]
    assert held(branch)["a"] == "s3://a/1"


def test_a_batch_that_was_not_committed_is_repeated(
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
    ("columns", "options", "message"),
    [
        ("key string", {}, "column 'key' of type array<string>"),
        ("key array<int>", {}, "column 'key' of type array<string>"),
        ("keys array<string>", {}, "column 'key' of type array<string>"),
        ("key array<string>, operaton string", {}, "Column 'operaton'.*is unknown"),
        ("key array<string>, sequence double", {}, "'sequence' must have an integer type"),
        ("key array<string>", {"mesage": "x"}, "A write has no option 'mesage'"),
        ("key array<string>", {"query": "x"}, "'query' and 'batch' need each other"),
        ("key array<string>", {"ref": "main@11223344"}, "Reference name must"),
    ],
)
def test_wrong_columns_and_options_are_refused(
    spark: SparkSession, served: Served, columns: str, options: dict[str, str], message: str
) -> None:
    all = {"uri": served.url, **options}
    schema = StructType.fromDDL(columns)  # This needs a running session.
    assert isinstance(schema, StructType)
    with pytest.raises(MoragError, match=message):
        CommitWriter(Origin.of(all), all, schema, overwrite=False)


def test_a_password_that_spark_would_show_is_refused(spark: SparkSession) -> None:
    options = {"store": "paper://ada:hush@127.0.0.1/catalog"}
    schema = StructType.fromDDL("key array<string>")
    assert isinstance(schema, StructType)
    with pytest.raises(CannotRun, match="by 'store_file'") as error:
        CommitWriter(Origin.of(options), options, schema, overwrite=False)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"key": ["a"]}, "Key 'a' has invalid content"),
        ({"key": ["a"], "content": "{}"}, "Key 'a' has invalid content"),
        ({"key": ["a"], "operation": "RENAME"}, "must be PUT or DELETE"),
        ({"key": [], "operation": "DELETE"}, "Content key must not be empty"),
        ({"key": None, "operation": "DELETE"}, "Content key must not be empty"),
    ],
)
def test_wrong_rows_are_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(MoragError, match=message):
        sequenced_operation(row)


def test_overwriting_a_branch_is_refused(spark: SparkSession, branch: Branch) -> None:
    with pytest.raises(PySparkException, match="adds a commit and never overwrites"):
        write(rows(spark), branch, "overwrite")


def test_rows_can_define_every_kind_of_content() -> None:
    udf = '{"type": "UDF", "sqlText": "1", "dialect": "spark"}'
    assert sequenced_operation({"key": ["f"], "content": udf}).operation.key == ContentKey.of("f")
    view = {"key": ["v"], "content_type": "ICEBERG_VIEW", "metadata_location": "s3://v"}
    put = sequenced_operation(
        {**view, "version_id": 3, "schema_id": 0, "CONTENT_ID": "x"}
    ).operation
    assert isinstance(put, Put)
    assert (put.content.id, getattr(put.content, "version_id", None)) == ("x", 3)
    plain = sequenced_operation({"key": ["t"], "metadata_location": "s3://t"}).operation
    assert isinstance(plain, Put)
    assert getattr(plain.content, "snapshot_id", None) == -1  # A table without data.


def test_of_several_rows_for_a_key_the_highest_sequence_counts() -> None:
    key = ContentKey.of("a")
    first, second = Put(key, table(1)), Put(key, table(2))
    gone = Delete(ContentKey.of("b"))
    operations = [
        SequencedOperation(5, second),
        SequencedOperation(None, gone),
        SequencedOperation(4, first),
    ]
    assert operations_of(operations) == operations_of(operations[::-1]) == [second, gone]
    for other in (None, 5):
        with pytest.raises(CannotRun, match="Key 'a' is in the batch more than once"):
            operations_of([SequencedOperation(5, second), SequencedOperation(other, first)])


class LosingCatalog:
    """A catalog that loses the response to its first commit."""

    def __init__(self, client: Client) -> None:
        self._client = client
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
            raise OutcomeUnknown("the response was lost")
        return result


class RacingCatalog(LosingCatalog):
    """A catalog in which `race` is called right before the first commit."""

    def __init__(self, client: Client, race: Callable[[], object]) -> None:
        super().__init__(client)
        self._race = race

    def commit(
        self, branch: str, operations: Sequence[Operation], meta: CommitMeta, *, expected: str
    ) -> CommitResult:
        if not self.lost.is_set():
            self.lost.set()
            self._race()
        return self._client.commit(branch, operations, meta, expected=expected)


def test_a_commit_whose_response_was_lost_is_searched(branch: Branch) -> None:
    losing: Any = LosingCatalog(branch.client)
    change = [Put(ContentKey.of("a"), table(1))]
    assert commit_once(losing, branch.name, change, CommitMeta(message="m"), Batch("q", 0)) is None
    assert branch.messages() == ["m"]
    losing.lost.clear()
    with pytest.raises(OutcomeUnknown):  # Without a batch number it cannot be found.
        commit_once(losing, branch.name, change, CommitMeta(message="n"), None)


def test_the_same_batch_by_a_process_that_was_thought_dead_is_one_commit(branch: Branch) -> None:
    """The first process commits between the search and the commit of the second one."""
    change = [Put(ContentKey.of("a"), table(1))]
    meta, batch = CommitMeta(message="m"), Batch("q", 0)
    racing: Any = RacingCatalog(
        branch.client, lambda: commit_once(branch.client, branch.name, change, meta, batch)
    )
    assert commit_once(racing, branch.name, change, meta, batch) is None
    assert branch.messages() == ["m"]


def test_a_conflict_with_a_concurrent_commit_is_retried(branch: Branch) -> None:
    change = [Put(ContentKey.of("a"), table(7))]
    concurrent = [Put(ContentKey.of("a"), table(1))]
    racing: Any = RacingCatalog(
        branch.client, lambda: branch.client.commit(branch.name, concurrent, "concurrent")
    )
    meta = CommitMeta(message="m")
    assert commit_once(racing, branch.name, change, meta, Batch("q", 0)) == branch.head
    assert branch.messages() == ["concurrent", "m"]
    with pytest.raises(ReferenceConflict):  # This conflict remains in every attempt.
        commit_once(
            branch.client, branch.name, [Delete(ContentKey.of("none"))], meta, Batch("q", 1)
        )


def test_a_batch_is_searched_back_to_the_previous_one(branch: Branch) -> None:
    for query, number in [("q", 1), ("other", 5), ("q", 3), ("other", 6)]:
        meta = Batch(query, number).marked(CommitMeta(message=f"{query} {number}"))
        change = [Put(ContentKey.of(f"{query}{number}"), table(number))]
        branch.client.commit(branch.name, change, meta)
    found = [n for n in range(8) if is_committed(branch.client, branch.head, Batch("q", n))]
    assert found == [1, 3]
    assert not is_committed(branch.client, NO_ANCESTOR_HASH, Batch("q", 1))


@pytest.mark.parametrize("number", [(), ("one",), ("1", "2")])
def test_commits_with_similar_properties_are_not_batches(
    branch: Branch, number: tuple[str, ...]
) -> None:
    branch.client.commit(
        branch.name,
        [Put(ContentKey.of("a"), table(1))],
        Batch("q", 1).marked(CommitMeta(message="batch")),
    )
    properties = {QUERY: ("q",), **({BATCH: number} if number else {})}
    similar = CommitMeta(message="similar", properties=properties)
    branch.client.commit(branch.name, [Put(ContentKey.of("b"), table(1))], similar)
    found = [n for n in range(3) if is_committed(branch.client, branch.head, Batch("q", n))]
    assert found == [1]


def test_a_retry_searches_only_the_new_part_of_the_log(branch: Branch) -> None:
    branch.commit(*"abcdef")

    class CountingCatalog(RacingCatalog):
        """Records the messages that each search of the log reads."""

        def __init__(self, client: Client, race: Callable[[], object]) -> None:
            super().__init__(client, race)
            self.history: Any = self
            self.seen: list[list[str]] = []

        def log(self, at: str, until: str | None = None) -> Iterator[LogEntry]:
            self.seen.append([])
            for entry in self._client.history.log(at, until=until):
                self.seen[-1].append(entry.meta.message)
                yield entry

    concurrent = [Put(ContentKey.of("x"), table(1))]
    counting: Any = CountingCatalog(
        branch.client, lambda: branch.client.commit(branch.name, concurrent, "concurrent")
    )
    change = [Put(ContentKey.of("x"), table(7))]
    commit_once(counting, branch.name, change, CommitMeta(message="m"), Batch("q", 0))
    assert counting.seen == [list("fedcba"), ["concurrent", "f"]]

"""The streaming source delivers every commit of a branch exactly once."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from morag import MoragError
from morag.model.names import NO_ANCESTOR_HASH
from morag.spark.opening import Origin
from morag.spark.source.commit_ranges import commits_after, fork_of
from morag.spark.source.schemas import schema_of
from morag.spark.source.stream import Commits, CommitStream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.server_process import Served
    from tests.spark.scratch_branch import Branch

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # PySpark leaves sockets open.


@pytest.fixture
def follow(spark: SparkSession, branch: Branch, tmp_path: Path) -> Follow:
    return Follow(spark, branch, tmp_path / "checkpoint")


class Follow:
    """A query on a branch that can be run repeatedly; `delivered` has the rows of each batch."""

    def __init__(self, spark: SparkSession, branch: Branch, checkpoint: Path) -> None:
        self._spark = spark
        self._branch = branch
        self._checkpoint = checkpoint
        self.delivered: dict[int, list[str]] = {}

    @property
    def messages(self) -> list[str]:
        return [message for _, batch in sorted(self.delivered.items()) for message in batch]

    def run(self, before: Callable[[int], None] | None = None, **options: str) -> None:
        """Run until the end of the branch. `before` is called in each batch."""

        def take(batch: DataFrame, number: int) -> None:
            messages = [row.message for row in batch.collect()]
            # A batch that is repeated has the same rows.
            assert self.delivered.setdefault(number, messages) == messages
            if before is not None:
                before(number)

        query = self._stream(**options).writeStream.foreachBatch(take)
        query = query.option("checkpointLocation", str(self._checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()

    def _stream(self, **options: str) -> DataFrame:
        all = {**self._branch.options, "table": "log", **options}
        reader = self._spark.readStream.format("morag")
        return reader.options(**all).schema("hash string, message string").load()


def test_every_run_continues_where_the_last_one_stopped(branch: Branch, follow: Follow) -> None:
    follow.run()
    assert follow.messages == []
    branch.commit("a", "b", "c")
    follow.run()
    assert follow.messages == ["a", "b", "c"]
    follow.run()
    assert follow.messages == ["a", "b", "c"]
    branch.commit("d", "e")
    follow.run()
    assert follow.messages == ["a", "b", "c", "d", "e"]


def test_a_failed_first_batch_is_repeated_with_the_same_commits(
    branch: Branch, follow: Follow
) -> None:
    """Spark requests the initial offset again, after the branch has moved."""
    branch.commit("a")

    def fail(_: int) -> None:
        branch.commit("b")
        raise OSError("no space left")

    with pytest.raises(StreamingQueryException, match="no space left"):
        follow.run(before=fail, start="now")
    follow.run(start="now")
    follow.run(start="now")
    assert follow.messages == ["b"]


@pytest.mark.long
def test_queries_that_fail_at_random_deliver_every_commit_once(
    branch: Branch, follow: Follow
) -> None:
    random = Random(7)
    made = [f"c{n}" for n in range(10)]
    failed = 0

    def maybe_fail(_: int) -> None:
        if random.random() < 0.6:
            raise OSError("the machine is gone")

    for n in range(0, len(made), 2):
        branch.commit(*made[n : n + 2])
        try:
            follow.run(before=maybe_fail)
        except StreamingQueryException as error:
            assert "the machine is gone" in str(error)
            failed += 1
    assert failed
    follow.run()
    follow.run()  # The previous run may only have repeated a batch.
    assert follow.messages == made


def test_a_stream_can_be_stopped_while_it_runs_and_limited(
    spark: SparkSession, branch: Branch, tmp_path: Path
) -> None:
    made = [f"c{n}" for n in range(7)]
    branch.commit(*made[:5])
    sizes: list[int] = []
    taken: list[str] = []

    def take(batch: DataFrame, _: int) -> None:
        messages = [row.message for row in batch.collect()]
        sizes.append(len(messages))
        taken.extend(messages)

    def start() -> Any:
        reader = spark.readStream.format("morag").options(**branch.options, table="log")
        stream = reader.option("max_commits", "2").schema("message string").load()
        query = stream.writeStream.foreachBatch(take)
        return query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    query = start()
    query.processAllAvailable()
    query.stop()
    assert sizes == [2, 2, 1]
    query = start()
    branch.commit(*made[5:])
    query.processAllAvailable()
    query.stop()
    assert taken == made


def test_operations_are_delivered_as_rows(
    spark: SparkSession, branch: Branch, tmp_path: Path
) -> None:
    branch.commit("a", "b")
    rows: list[Any] = []
    reader = spark.readStream.format("morag").options(**branch.options, table="log")
    stream = reader.option("operations", "true").load()
    query = stream.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert [(row.operation, row.key, row.snapshot_id) for row in rows] == [
        ("PUT", ["a"], 0),
        ("PUT", ["b"], 1),
    ]
    assert [row.hash for row in rows] == [entry.meta.hash for entry in branch.log()]


def test_the_error_for_a_moved_branch_says_how_to_continue(
    spark: SparkSession, branch: Branch, follow: Follow, tmp_path: Path
) -> None:
    branch.commit("a", "b", "c")
    follow.run()
    old_head, shared = branch.head, branch.log()[0].meta.hash
    branch.client.references.assign(branch.name, f"@{shared}")
    branch.commit("x")
    with pytest.raises(StreamingQueryException) as error:
        follow.run()
    text = str(error.value)
    assert f"does not contain {old_head}, the last commit" in text
    assert f".option('start', '{shared}')" in text

    again = Follow(spark, branch, tmp_path / "new checkpoint")
    again.run(start=str(shared))
    assert again.messages == ["x"]

    branch.client.references.assign(branch.name, f"@{old_head}")  # The other solution.
    branch.commit("d")
    follow.run()
    assert follow.messages == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ref": "main@11223344"}, "'ref' must be its name alone"),
        ({"start": "yesterday"}, "Hash must consist of"),
        ({"start": "11223344"}, "a whole hash"),
        ({"start": "11" * 32}, f"'start' names {'11' * 32}, which is not on branch 'main'"),
        ({"max_commits": "0"}, "'max_commits' must be a number above 0"),
        ({"strat": "now"}, "A stream has no option 'strat'"),
        ({"ref": "absent"}, "Named reference 'absent' not found"),
    ],
)
def test_wrong_options_are_refused(served: Served, options: dict[str, str], message: str) -> None:
    all = {"uri": served.url, "table": "log", **options}
    with pytest.raises(MoragError, match=message):
        CommitStream(Origin.of(all), all, schema_of("log")).latestOffset()


def test_a_batch_starts_at_the_offset_that_spark_passes(branch: Branch) -> None:
    a, b, c, d = branch.commit("a", "b", "c", "d")
    options = {**branch.options, "table": "log"}
    stream = CommitStream(Origin.of(options), options, schema_of("log"))
    assert stream.latestOffset() == {"after": d}
    (part,) = stream.partitions({"after": b}, {"after": d})
    assert isinstance(part, Commits)
    assert (part.newest, part.oldest) == (d, c)
    (part,) = stream.partitions({"after": NO_ANCESTOR_HASH}, {"after": b})
    assert isinstance(part, Commits)
    assert (part.newest, part.oldest) == (b, a)


def test_commits_between_two_positions_are_found(branch: Branch) -> None:
    client = branch.client
    a, b, c = branch.commit("a", "b", "c")
    client.references.assign(branch.name, f"@{b}")
    (d,) = branch.commit("d")
    assert commits_after(client, a, c) == [c, b]
    assert commits_after(client, NO_ANCESTOR_HASH, b) == [b, a]
    assert commits_after(client, c, c) == []
    assert commits_after(client, c, d) is None
    assert commits_after(client, b, a) is None
    assert commits_after(client, a, NO_ANCESTOR_HASH) is None
    assert fork_of(client, c, d) == fork_of(client, d, c) == b
    assert fork_of(client, a, d) == fork_of(client, d, a) == a
    assert fork_of(client, a, NO_ANCESTOR_HASH) == NO_ANCESTOR_HASH

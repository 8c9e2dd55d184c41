"""`morag spark generate` writes ordinary histories into a store, the same for the same seed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

import morag
from morag import ContentKey, IcebergTable, Namespace, Put, ReferenceConflict
from morag.cli.main import main
from morag.errors import ReferenceAlreadyExists
from morag.generate.generate_options import GenerateOptions
from morag.spark import CannotRun
from morag.spark.generation import generate
from morag.spark.opening import Origin

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from morag import Repository
    from morag.model.content import Content
    from morag.spark.generation import Generated

OPTIONS: Final = GenerateOptions(
    seed=5,
    run="test",
    commits=90,
    branches=3,
    tables=40,
    puts_per_commit=6,
    tag_probability=0.2,
    key_pattern="space-${int,3}.deep-${int,2}.table-${seq,0}",
    author="Ada",
)
START_NANOS: Final = 1_700_000_000_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'catalog.db'}"


def run(spark: SparkSession, store: str, options: GenerateOptions = OPTIONS) -> Generated:
    return generate(spark, Origin(store=store), options, start_nanos=START_NANOS)


def state_of(repository: Repository, branch: str) -> dict[ContentKey, Content | None]:
    listed = repository.contents.entries(branch, with_content=True)
    return {entry.key: entry.content for entry in listed}


def replayed(repository: Repository, branch: str) -> dict[ContentKey, Content | None]:
    """The keys of a branch according to the operations of its commits."""
    state: dict[ContentKey, Content | None] = {}
    for entry in reversed(list(repository.history.log(branch, with_operations=True))):
        for operation in entry.operations or ():
            assert isinstance(operation, Put)
            state[operation.key] = operation.content
    return state


def test_branches_have_their_commits_and_every_index_agrees_with_the_log(
    spark: SparkSession, store: str
) -> None:
    done = run(spark, store)
    assert (done.commits, len(done.branches)) == (90, 3)
    with morag.open(store) as repository:
        for name, head in done.branches.items():
            assert repository.references.get(name).hash == head
            log = list(repository.history.log(name, with_operations=True))
            assert len(log) == 30
            assert all(1 <= len(_tables(entry.operations)) <= 6 for entry in log)
            assert {entry.meta.authors for entry in log} == {("Ada",)}
            state = state_of(repository, name)
            assert state == replayed(repository, name)
            tables = [key for key, content in state.items() if isinstance(content, IcebergTable)]
            spaces = {key for key, content in state.items() if isinstance(content, Namespace)}
            assert {table.parent for table in tables} <= spaces
            assert {table.parent.parent for table in tables} <= spaces
            for commit in log:  # The state at each commit, read past the cache of the writer.
                assert repository.contents.get_all(
                    f"@{commit.meta.hash}", [put.key for put in commit.operations or ()]
                ) == {
                    put.key: put.content for put in commit.operations or () if isinstance(put, Put)
                }
        assert sum(1 for _ in repository.references.list("TAG")) == done.tags > 5
    assert main(["admin", "check", "--store", store, "--quiet"]) == 0


def _tables(operations: object) -> list[Put]:
    assert isinstance(operations, tuple)
    return [put for put in operations if isinstance(put.content, IcebergTable)]


def test_a_key_keeps_its_content_id_and_each_branch_has_its_own(
    spark: SparkSession, store: str
) -> None:
    done = run(spark, store)
    ids: dict[str, tuple[str, ContentKey]] = {}
    with morag.open(store) as repository:
        for name in done.branches:
            for entry in repository.history.log(name, with_operations=True):
                for put in entry.operations or ():
                    assert isinstance(put, Put)
                    assert put.content.id is not None
                    where = name, put.key
                    assert ids.setdefault(put.content.id, where) == where


def test_the_same_seed_gives_the_same_commits_in_every_store_and_any_number_of_tasks(
    spark: SparkSession, store: str, tmp_path: Path
) -> None:
    first = run(spark, store)
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        in_one_task = run(spark, f"sqlite:{tmp_path / 'one-task.db'}")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    embedded = run(spark, f"rocksdb:{tmp_path / 'rocks'}")
    assert first.branches == in_one_task.branches == embedded.branches
    assert first.rows == embedded.rows
    other = run(spark, f"sqlite:{tmp_path / 'other.db'}", replace(OPTIONS, seed=6))
    assert not set(other.branches.values()) & set(first.branches.values())


def test_the_history_goes_on_after_it(spark: SparkSession, store: str) -> None:
    """Further runs and ordinary commits build on top of what was generated."""
    alone = replace(OPTIONS, branches=1)
    first = run(spark, store, alone)
    second = run(spark, store, replace(alone, seed=6))
    with morag.open(store) as repository:
        repository.commit("main", [Put(ContentKey.of("mine"), Namespace.of("mine"))], "mine")
        assert len(list(repository.history.log("main"))) == 181
        assert state_of(repository, "main") == replayed(repository, "main")
        moves = repository.references.moves().items
    assigned = [
        (move.hash_before, move.hash_after)
        for move in moves
        if move.operation == "ASSIGN_REFERENCE"
    ]
    assert assigned[0] == (first.branches["main"], second.branches["main"])


def test_a_branch_of_an_earlier_run_is_refused_before_anything_is_written(
    spark: SparkSession, store: str
) -> None:
    run(spark, store)
    with pytest.raises(ReferenceAlreadyExists, match="Choose another seed"):
        run(spark, store)


def test_a_failed_job_changes_no_reference(spark: SparkSession, store: str) -> None:
    with morag.open(store) as repository:
        content = IcebergTable(
            metadata_location="generated:///x",
            snapshot_id=1,
            schema_id=1,
            spec_id=1,
            sort_order_id=1,
        )
        repository.commit("main", [Put(ContentKey.of("space-1"), content)], "in the way")
        before = list(repository.references.list())
    with pytest.raises(Exception, match="'space-1', which is not a namespace") as failed:
        run(spark, store)
    assert not isinstance(failed.value, ReferenceConflict)  # It is raised by an executor.
    with morag.open(store) as repository:
        assert list(repository.references.list()) == before


def test_keys_that_no_catalog_can_hold_are_refused(spark: SparkSession, store: str) -> None:
    """A dot at the end is cut off, so `a.` is the key `a`, and other keys are below it."""
    wrong = replace(OPTIONS, tables=1000, key_pattern="a.${string,1}")
    with pytest.raises(morag.BadRequest, match="'a' and keys below it"):
        run(spark, store, wrong)


def test_a_server_is_not_a_store(spark: SparkSession) -> None:
    with pytest.raises(CannotRun, match="works on the rows of a store"):
        generate(spark, Origin(uri="http://127.0.0.1:1"), OPTIONS)


def test_the_command_prints_figures(
    spark: SparkSession, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["spark", "generate", "--store", store, "-n", "20", "-b", "2", "-t", "5", "--seed"]
    assert main([*arguments, "1", "--quiet", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["commits"], figures["puts"]) == (20, 20)
    assert set(figures["branches"]) == {"main", "branch-seed-1_0"}
    assert main([*arguments, "2", "--quiet", "--type", "iceberg_view"]) == 0
    assert "20 commits with 20 puts" in capsys.readouterr().out

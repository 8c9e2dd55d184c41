"""Mistakes in a command line are found before Java starts; records are read without it."""

from __future__ import annotations

import socket
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import morag
from morag.cli.main import Misuse, main
from morag.cli.spark_flags import add_store_flags, store_origin_of
from tests.spark.iceberg_lake import Lake
from tests.spark.recorded_runs import recorded_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'catalog.db'}"


@pytest.fixture
def lake(tmp_path: Path, store: str) -> Iterator[Lake]:
    with morag.open(store) as repository:
        yield Lake(repository, (tmp_path / "lake").as_uri())


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test fails if it starts Java, or uses the Java of other tests."""

    def start(*_: object) -> None:
        raise AssertionError("Java would start now")

    monkeypatch.setattr("morag.spark.commands.command_session", start)


_SERVER: Final = ["--uri", "http://127.0.0.1:1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["read", "entries"], "name the catalog by --uri or by --store"),
        (["read", "nothing", *_SERVER], "invalid choice: 'nothing'"),
        (["read", "entries", "--uri", "foo"], "Server URI 'foo' must start with http"),
        (["read", "entries", "--columns", "key,foo", *_SERVER], "has no column 'foo'; it has: key"),
        (["read", "diff", *_SERVER], "needs the option 'from'"),
        (["read", "objects", *_SERVER], "reads the rows of a store"),
        (["read", "entries", "--limit", "0", *_SERVER], "'0' is not a number of rows"),
        (["read", "entries", "--output", "/", *_SERVER], "--output '/' exists already"),
        (["diff", "main", *_SERVER], "name the second ref as well"),
        (["diff", "main...", *_SERVER], "'main...' must name two refs"),
        (["diff", "a", "b", "--files", "x", *_SERVER], "--files must be NAME=VALUE, not 'x'"),
        (["gc", "collect", *_SERVER], "required: --runs"),
        (["gc", "collect", "--runs", "r", "--grace", "3days", *_SERVER], "grace period '3days'"),
        (["gc", "collect", "--runs", "r", "--cutoff", "soon", *_SERVER], "Cut-off policy 'soon'"),
        (["gc", "collect", "--runs", "r", "--cutoff-for", "a", *_SERVER], "be PATTERN=POLICY"),
        (["gc", "collect", "--runs", "r", "--cutoff-for", "(=1", *_SERVER], "not a regular exp"),
        (["gc", "collect", "--runs", "r", "--location", "s3://b", *_SERVER], "is a whole disk or"),
        (["gc", "collect", "--runs", "r", "--quarantine", "gs://b", *_SERVER], "disks and of S3"),
        ([], "required: JOB"),
    ],
)
def test_wrong_arguments_are_refused_before_java_starts(
    arguments: list[str], message: str, no_java: None, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["spark", *arguments])
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["read", "entries", "--uri", "http://127.0.0.1:1"], "Nothing listens at http://127.0.0.1"),
        (["read", "entries", "--store", "sqlite:/no/such/file"], "There is no SQLite store in"),
        (["read", "entries", "--ref", "nobody"], "Named reference 'nobody' not found"),
        (["read", "diff", "--from", "main", "--to", "nobody"], "Named reference 'nobody' not fo"),
        (["read", "log", "--conf", "a"], "--conf must be NAME=VALUE"),
        (["read", "log", "--master", "mars"], "'mars' is not a master of Spark: write it like"),
        (["read", "log", "--jars", "no.jar"], "There is no jar 'no.jar'"),
        (["diff", "main", "nobody"], "Named reference 'nobody' not found"),
        (["diff", "main...nobody"], "Named reference 'nobody' not found"),
        (["diff", "main", "main", "--rows", "db.none"], "Neither 'main' nor 'main' has a table"),
        (["diff", "main", "main", "--rows", "db"], "is of type NAMESPACE and has no rows"),
        (
            ["diff", "main", "main", "--rows", "db.orders", "--on", "id,nil"],
            "Rows cannot be identified by ['nil']",
        ),
        (["health", "nobody"], "Named reference 'nobody' not found"),
        (["health", "--orphans", "no-run"], "'no-run' is not a recorded run"),
        (["gc", "sweep", "no-run"], "'no-run' is not a recorded run: it has no plan.json"),
    ],
)
def test_a_catalog_or_its_contents_that_are_missing_are_reported_before_java_starts(
    arguments: list[str],
    message: str,
    lake: Lake,
    store: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake.make("db.orders", rows=0)
    monkeypatch.setattr(sys.modules["morag.spark.session"], "provide_java", pytest.fail)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    named = {"--uri", "--store"} & set(arguments)
    assert main(["spark", *arguments, *([] if named else ["--store", store])]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("morag: ")
    assert message in line


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fsck", "--store", "sqlite:{}/none"], 1, "There is no SQLite store in"),
        (["purge", "--store", "sqlite:{}/none"], 1, "There is no SQLite store in"),
        (["copy", "sqlite:{}/none", "sqlite:{}/new"], 1, "There is no SQLite store in"),
        (["export", "{}/new", "--store", "sqlite:{}/none"], 1, "There is no SQLite store in"),
        (["export", "{}", "--store", "{store}"], 2, "exists already; name a new directory"),
        (
            ["export", "{}/new", "--store", "{store}", "--repository-id", "other"],
            4,
            "holds no such repository",
        ),
    ],
)
def test_jobs_on_a_whole_store_look_for_it_before_java_starts(
    arguments: list[str],
    code: int,
    message: str,
    lake: Lake,
    store: str,
    tmp_path: Path,
    no_java: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [text.format(tmp_path, store=store) for text in arguments]
    assert main(["spark", *given]) == code
    assert message in capsys.readouterr().err


def test_the_records_of_a_run_are_read_and_unlocked_without_java(
    tmp_path: Path, no_java: None, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded_run(tmp_path)
    gc_command = ["spark", "gc"]
    assert main([*gc_command, "list", "--runs", str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().out == f"{run}  orphans\n"
    assert main([*gc_command, "list", "--runs", str(tmp_path / "none")]) == 0
    assert "no runs in " in capsys.readouterr().err
    assert main([*gc_command, "show", run, "--limit", "1"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "path  size_bytes\na     1\n"
    assert "only the first 1 rows are shown" in printed.err
    assert main([*gc_command, "show", f"file://{run}", "--json"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == '{"path":"b","size_bytes":2}'
    assert main([*gc_command, "show", run, "--part", "listed"]) == 1
    assert "has no step 'listed' yet, but orphans" in capsys.readouterr().err
    lock = Path(run) / "busy"
    lock.touch()
    assert main([*gc_command, "unlock", run]) == 0
    assert not lock.exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--uri", "http://127.0.0.1:1"], "no server exposes: name the server's store by --store"),
        (["--store", "http://127.0.0.1:1"], "no server exposes: name the server's store by --s"),
        ([], "name the store by --store or by --store-file"),
        (["--store", "sqlite:a", "--store-file", "b"], "name the store by --store or by --store-f"),
    ],
)
def test_a_job_on_the_rows_of_a_store_refuses_a_server(flags: list[str], message: str) -> None:
    with pytest.raises(Misuse, match=message):
        store_origin_of(_store_job().parse_args(flags))


def test_a_job_on_the_rows_of_a_store_takes_a_repository() -> None:
    flags = ["--store", "sqlite:catalog.db", "--repository-id", "other"]
    origin = store_origin_of(_store_job().parse_args(flags))
    assert (origin.store, origin.repository_id) == ("sqlite:catalog.db", "other")
    assert "--uri" not in _store_job().format_help()


def _store_job() -> ArgumentParser:
    parser = ArgumentParser()
    add_store_flags(parser)
    return parser


def test_a_store_in_memory_is_refused_with_advice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", "read", "entries", "--store", "memory:"]) == 1
    assert "morag serve --store memory:" in capsys.readouterr().err


def test_an_unreachable_server_is_reported_in_one_line(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    uri = f"http://127.0.0.1:{port}"
    assert main(["spark", "read", "entries", "--uri", uri, "--quiet"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("morag: ")
    assert "an address that the driver and all executors reach" in line

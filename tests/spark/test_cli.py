"""The commands `morag spark …`."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

import morag
from morag.cli.main import main
from morag.cli.spark_text import diff_text, size
from morag.errors import ArchiveInvalid
from morag.spark import CannotRun, gc
from morag.spark.commands import readable_errors, root_message, write_parquet
from tests.spark.iceberg_lake import Lake
from tests.spark.recorded_runs import recorded_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


_PATIENCE_SECONDS: Final = 100


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'catalog.db'}"


@pytest.fixture
def lake(tmp_path: Path, store: str) -> Iterator[Lake]:
    with morag.open(store) as repository:
        yield Lake(repository, (tmp_path / "lake").as_uri())


def test_a_diff_is_printed_in_words(
    spark: SparkSession, lake: Lake, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.make("db.orders", rows=2)
    lake.make("db.old")
    lake.catalog.references.create_branch("dev", at="main")
    dev = lake.on("dev")
    dev.grow("db.orders", 3)
    dev.rename("db.old", "db.new")
    assert main(["spark", "diff", "main", "dev", "--store", store]) == 0
    printed = capsys.readouterr()
    lines = [line for line in printed.out.splitlines() if not line.startswith(" ")]
    assert len(lines) == 2, "sorted by key"
    assert lines[0].startswith("> db.new (was db.old)  ICEBERG_TABLE  1 rows; 1 files; ")
    assert lines[1].startswith("~ db.orders  ICEBERG_TABLE  rows 2 to 5 (+3); files 1 to 2 (+1); ")
    assert "    ahead: append\n" in printed.out
    assert "diff: " in printed.err

    lake.make("db.later")  # On main, since they parted.
    assert main(["spark", "diff", "main...dev", "--store", store]) == 0
    shown = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["> db.new (was db.old)", "~ db.orders", ""]

    rows = ["spark", "diff", "main", "dev", "--store", store, "--rows", "db.orders", "--json"]
    assert main([*rows, "--quiet"]) == 0
    printed = capsys.readouterr()
    changes = [msgspec.json.decode(line) for line in printed.out.splitlines()]
    assert [change["_change"] for change in changes] == ["ADDED"] * 3
    assert printed.err == ""
    assert diff_text([]) == "no differences\n"


def test_columns_and_rows_of_a_table_can_be_selected(
    spark: SparkSession, lake: Lake, store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lake.make("db.orders")
    lake.make("db.items")
    read = ["spark", "read", "entries", "--store", store, "--columns", "key,content_type"]
    assert main([*read, "--where", "name = 'orders'"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "key        content_type",
        "db.orders  ICEBERG_TABLE",
    ]
    assert main([*read, "--limit", "1"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    assert "only the first 1 rows are shown" in printed.err
    path = str(tmp_path / "entries")
    assert main([*read, "--output", path]) == 0
    assert main([*read, "--output", path]) == 2  # An existing path is not overwritten.
    with pytest.raises(CannotRun, match="exists already"):
        write_parquet(spark.range(1), path)
    assert spark.read.parquet(path).count() == 3
    assert main([*read[:-1], "key,nonsense", "--where", "true"]) == 1
    assert "nonsense" in capsys.readouterr().err


def test_the_exit_code_shows_that_a_lake_has_lost_files(
    spark: SparkSession, lake: Lake, store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lake.make("db.orders")
    lake.make("db.lost")
    health = ["spark", "health", "main", "--store", store]
    assert main(health) == 0
    assert "ICEBERG_TABLE  OK" in capsys.readouterr().out
    for file in (tmp_path / "lake" / "db" / "lost" / "metadata").glob("*.json"):
        file.unlink()
    assert main([*health, "--json"]) == 3
    rows = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["key"][-1]: row["status"] for row in rows} == {
        "db": "OK",
        "lost": "MISSING",
        "orders": "OK",
    }


@pytest.mark.long
def test_garbage_is_removed_only_without_dry_run(
    spark: SparkSession, lake: Lake, store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lake.make("db.orders")
    lake.make("db.clean")
    litter = tmp_path / "lake" / "db" / "orders" / "data" / "litter.parquet"
    litter.write_bytes(b"12345")
    runs, catalog = str(tmp_path / "runs"), ["--store", store]
    collect = ["spark", "gc", "collect", "--runs", runs, "--grace", "PT0S", *catalog]
    assert main(collect) == 0
    printed = capsys.readouterr()
    run = printed.out.splitlines()[0].removeprefix("run ")
    assert "orphans: 1 files, 5 B" in printed.out
    assert "this was a dry run" in printed.out
    assert "listed: " in printed.err  # The name of a stage.
    assert main(["spark", "health", "--orphans", run, "--json", *catalog]) == 0
    rows = (msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines())
    assert {row["key"][-1]: (row["orphan_files"], row["orphan_bytes"]) for row in rows} == {
        "db": (None, None),
        "clean": (0, 0),
        "orders": (1, 5),
    }
    assert main(["spark", "gc", "sweep", run, *catalog]) == 0
    assert litter.exists()
    assert main(["spark", "gc", "show", run, "--json"]) == 0
    orphans = capsys.readouterr().out.splitlines()[-1]
    assert msgspec.json.decode(orphans)["path"] == f"file://{litter}"
    waiting = litter.parent / ".morag-quarantine" / Path(run).name / litter.name
    waiting.parent.mkdir(parents=True)
    waiting.write_bytes(b"54321")
    assert main(["spark", "gc", "purge", run, *catalog]) == 1
    assert "sweep it first" in capsys.readouterr().err
    assert main(["spark", "gc", "sweep", run, "--no-dry-run", *catalog]) == 1
    assert "removed: failed 1 files, 5 B" in capsys.readouterr().out
    assert main(["spark", "gc", "purge", run, "--no-dry-run", *catalog]) == 0
    assert "removed: failed 1 files, 5 B" in capsys.readouterr().out, (
        "a failure of another command does not count"
    )
    other = f"sqlite:{tmp_path / 'other.db'}"
    morag.open(other).close()
    for step in ("sweep", "purge"):
        assert main(["spark", "gc", step, run, "--store", other]) == 1
        assert f"but this is '{other}'" in capsys.readouterr().err
    waiting.unlink()
    assert main(["spark", "gc", "sweep", run, "--no-dry-run", *catalog]) == 0
    assert "removed: quarantined 1 files, 5 B" in capsys.readouterr().out
    assert not litter.exists()
    assert main(["spark", "gc", "purge", run, *catalog]) == 0  # A dry run.
    assert waiting.exists()
    assert main(["spark", "gc", "show", run, "--part", "removed-1"]) == 1
    assert "no step 'removed-1' yet, but refs, " in capsys.readouterr().err
    assert main(["spark", "gc", "undo", run]) == 0
    assert "undone: restored 1 files, 5 B" in capsys.readouterr().out
    assert litter.read_bytes() == b"12345"
    assert main(["spark", "gc", "list", "--runs", runs]) == 0
    assert "orphans, " in capsys.readouterr().out
    Path(f"{run}/busy").touch()
    assert main(["spark", "gc", "undo", run]) == 1
    assert "morag spark gc unlock" in capsys.readouterr().err
    assert main(["spark", "gc", "unlock", run]) == 0
    assert main(["spark", "gc", "purge", run, "--no-dry-run", *catalog]) == 1
    assert "was undone" in capsys.readouterr().err
    assert main(["spark", "gc", "show", run, "--part", "removed", "--json"]) == 0
    (shown,) = capsys.readouterr().out.splitlines()
    assert msgspec.json.decode(shown)["outcome"] == "QUARANTINED"


@pytest.mark.parametrize("step", ["resume", "sweep", "undo", "purge"])
def test_an_interrupted_gc_job_prints_how_to_continue(
    spark: SparkSession,
    lake: Lake,
    store: str,
    tmp_path: Path,
    step: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gc, step, stopped)
    catalog = [] if step == "undo" else ["--store", store]
    assert main(["spark", "gc", step, recorded_run(tmp_path), *catalog]) == 1
    assert "repeat the command" in capsys.readouterr().err


@pytest.mark.long
def test_a_quiet_command_prints_its_result_and_nothing_else(
    lake: Lake, store: str, tmp_path: Path
) -> None:
    lake.make("db.orders", rows=2)
    lake.catalog.references.create_branch("dev", at="main")
    lake.on("dev").grow("db.orders")
    job = [sys.executable, "-m", "morag", "spark", "diff", "main", "dev", "--store", store]
    quick = ["--quiet", "--master", "local[1]", "--conf", f"spark.local.dir={tmp_path}"]
    done = subprocess.run([*job, *quick], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.startswith("~ db.orders  ICEBERG_TABLE  rows 2 to 3 (+1); ")
    assert done.stderr == ""


@pytest.mark.long
def test_ctrl_c_ends_a_job_that_waits(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(_PATIENCE_SECONDS)
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        job = [sys.executable, "-m", "morag", "spark", "read", "entries", "--uri", uri]
        quick = ["--master", "local[1]", "--conf", f"spark.local.dir={tmp_path}"]
        process = subprocess.Popen([*job, *quick], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        try:
            _answer(silent)  # The check before Java starts.
            held, _ = silent.accept()  # The request of the job never gets a response.
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=_PATIENCE_SECONDS)
            held.close()
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 1
    assert "morag: stopped\n" in errors
    assert "Traceback" not in errors


def _answer(server: socket.socket) -> None:
    """Answer the request for the configuration of a catalog."""
    connection, _ = server.accept()
    with connection:
        connection.recv(100_000)
        body = b'{"defaultBranch": "main", "maxSupportedApiVersion": 2}'
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def test_an_error_that_ctrl_c_caused_is_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), readable_errors():
        try:
            raise KeyboardInterrupt
        finally:
            raise Py4JError("Answer from Java side is empty")
    with pytest.raises(CannotRun, match="Spark failed: no answer"), readable_errors():
        raise Py4JError("no answer")


def test_damage_that_an_executor_found_stays_damage() -> None:
    """So that commands end with the exit code of damage."""
    report = "Job aborted\n  File x\nmorag.errors.ArchiveInvalid: It is cut\n\tat java.lang"
    with pytest.raises(ArchiveInvalid, match=r"^It is cut$"), readable_errors():
        raise Py4JError(report)


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (
            "An error occurred\n  File x\nmorag.spark.errors.CannotRun: No store\n\tat java.lang",
            "No store",
        ),
        ("Job aborted\nValueError: odd\n\tat java.lang", "Spark failed: ValueError: odd"),
        ("[SOME_CLASS] what happened\nJVM stacktrace:", "Spark failed: [SOME_CLASS] what happened"),
    ],
)
def test_the_root_message_is_found_in_long_reports(report: str, message: str) -> None:
    assert root_message(report) == message


@pytest.mark.parametrize(
    ("bytes", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (2_500_000, "2.5 MB")]
)
def test_sizes_are_shown_with_units(bytes: int, text: str) -> None:
    assert size(bytes) == text

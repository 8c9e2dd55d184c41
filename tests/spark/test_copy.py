"""Copies of whole repositories: equal rows, references and ref-log; interrupted and resumed."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from random import Random
from signal import SIGKILL
from typing import TYPE_CHECKING

import pytest

import morag
from morag import ContentKey, Put, TagNote
from morag.backend.base import Slice
from morag.backend.urls import open_backend
from morag.cli.main import main
from morag.config import Settings
from morag.errors import ImportUnderWay, RepositoryExists
from morag.spark.copy import copy
from morag.spark.opening import Origin
from morag.testing.backend_contract import a_custom_row
from morag.versions.maintenance.copying import CopySource, CopyTarget, copy_part, note_copied
from morag.versions.world import World
from tests.maintenance.purge_scenario import SMALL, a_table

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import SparkSession

    from morag.format.records import ObjId, Ref, Row

NAMES = ["int/refs", "int/repo", "refs/heads/main", "refs/heads/side", "refs/tags/t"]


def filled(url: str) -> str:
    with morag.open(url, SMALL) as repo:
        for branch in ("main", "side"):
            if branch != "main":
                repo.references.create_branch(branch, "main")
            for n in range(5):
                keys = [ContentKey.of(f"{branch}{n}-{k}") for k in range(9)]
                repo.commit(branch, [Put(key, a_table(f"{key}")) for key in keys], "m")
        repo.references.create_tag("t", "side", TagNote("note"))
        repo.references.create_branch("dropped", "main")
        repo.references.delete("dropped")
    backend = open_backend(url)
    backend.insert_rows("", [a_custom_row(b"signer-keys", "1")])
    backend.close()
    return url


def content(url: str) -> tuple[dict[ObjId, Row], dict[str, Ref], object]:
    backend = open_backend(url, read_only=True)
    rows = {row.id: row for row in backend.scan_rows("")}
    refs = backend.read_refs("", NAMES)
    log = backend.read_log("", None, 1000)  # type: ignore[attr-defined]
    backend.close()
    return rows, refs, log


@pytest.mark.parametrize(
    ("source", "target"), [("sqlite", "sqlite"), ("rocksdb", "sqlite"), ("sqlite", "rocksdb")]
)
def test_a_copy_is_equal_to_its_source(
    spark: SparkSession, tmp_path: Path, source: str, target: str
) -> None:
    url, to = filled(f"{source}:{tmp_path / 'a'}"), f"{target}:{tmp_path / 'b'}"
    done = copy(spark, Origin(store=url), Origin(store=to), parts=8, check=False)
    assert content(to) == content(url)
    assert (done.rows, done.references) == (len(content(url)[0]), 3)
    assert done.findings is None
    with morag.open(to, SMALL) as repo:
        repo.commit("main", [Put(ContentKey.of("new"), a_table("new"))], "goes on")


def test_an_interrupted_copy_is_refused_by_servers_and_completed_by_the_next_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    url, to = filled(f"sqlite:{tmp_path / 'a'}"), f"sqlite:{tmp_path / 'b'}"
    reading, writing = open_backend(url, read_only=True), open_backend(to)
    source = CopySource(reading, Settings(), World())
    target = CopyTarget(writing, Settings(), World(), source, 4)
    for index in (0, 2):
        part = Slice(index, 4)
        copy_part(reading, "", writing, "", part)
        note_copied(writing, "", part, source.state, 1)
    assert target.missing_parts() == [1, 3]
    writing.close()
    reading.close()
    for read_only in (True, False):
        with pytest.raises(ImportUnderWay, match="morag spark copy"):
            morag.open(to, read_only=read_only)
    done = copy(spark, Origin(store=url), Origin(store=to), parts=99, check=False)
    assert (done.parts, done.skipped_parts) == (4, 2)
    assert content(to) == content(url)


def test_parts_are_copied_again_if_references_changed_meanwhile(
    spark: SparkSession, tmp_path: Path
) -> None:
    url, to = filled(f"sqlite:{tmp_path / 'a'}"), f"sqlite:{tmp_path / 'b'}"
    reading, writing = open_backend(url, read_only=True), open_backend(to)
    source = CopySource(reading, Settings(), World())
    CopyTarget(writing, Settings(), World(), source, 4)
    for index in range(4):
        copy_part(reading, "", writing, "", Slice(index, 4))
        note_copied(writing, "", Slice(index, 4), source.state, 1)
    reading.close()
    writing.close()
    with morag.open(url, SMALL) as repo:
        repo.commit("main", [Put(ContentKey.of("late"), a_table("late"))], "late")
    backend = open_backend(url)
    custom = a_custom_row(b"signer-keys", "1")
    assert backend.swap_row("", custom, a_custom_row(b"signer-keys", "2", b"changed"))
    backend.close()
    done = copy(spark, Origin(store=url), Origin(store=to), check=False)
    assert (done.parts, done.skipped_parts) == (4, 0)
    assert content(to) == content(url)


def test_a_target_that_is_in_use_or_full_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    url, to = filled(f"sqlite:{tmp_path / 'a'}"), filled(f"sqlite:{tmp_path / 'b'}")
    before = content(to)
    with pytest.raises(RepositoryExists, match="already"):
        copy(spark, Origin(store=url), Origin(store=to))
    assert content(to) == before


def test_the_command_copies(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, to = filled(f"rocksdb:{tmp_path / 'a'}"), f"sqlite:{tmp_path / 'b'}"
    assert main(["spark", "copy", url, to, "--quiet", "--no-check"]) == 0
    out = capsys.readouterr().out
    assert "3 references" in out
    assert "not checked" in out


@pytest.mark.long
def test_the_command_checks_the_copy(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = filled(f"rocksdb:{tmp_path / 'a'}")
    assert main(["spark", "copy", url, f"sqlite:{tmp_path / 'b'}", "--quiet"]) == 0
    assert "the copy is intact" in capsys.readouterr().out
    backend = open_backend(url)
    lost = next(row for row in backend.scan_rows("") if row.kind == "v")
    backend.delete_rows("", [lost.id])
    backend.close()
    assert main(["spark", "copy", url, f"sqlite:{tmp_path / 'c'}", "--quiet"]) == 3
    assert lost.id.hex() in capsys.readouterr().err


@pytest.mark.parametrize(
    ("urls", "problem"),
    [
        (["http://127.0.0.1:1", "sqlite:x"], "no server exposes"),
        (["sqlite:x", "nothing:x"], "nothing"),
        (["memory:", "sqlite:x"], "memory"),
    ],
)
def test_impossible_stores_are_refused_before_java_starts(
    urls: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["spark", "copy", *urls, "--master", "no-such-master"]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.long
def test_a_copy_can_be_killed_and_repeated_at_any_moment(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The copy runs in a process of its own, which is killed with its executors."""
    url, to = filled(f"sqlite:{tmp_path / 'a'}"), f"sqlite:{tmp_path / 'b'}"
    random = Random(5)
    command = [sys.executable, "-m", "morag", "spark", "copy", url, to, "--master", "local[2]"]
    # One that was killed while it stopped had finished its copy, too.
    finished: AbstractContextManager[object] = suppress(RepositoryExists)
    for _ in range(4):
        running = subprocess.Popen(
            [*command, "--no-check", "--quiet"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            running.wait(random.uniform(6, 16))
            finished = pytest.raises(RepositoryExists)
            break
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, SIGKILL)
            running.wait(30)
    with finished:
        copy(spark, Origin(store=url), Origin(store=to), check=False)
    assert content(to) == content(url)

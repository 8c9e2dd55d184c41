"""The master of a session, and the addresses that it listens on."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentParser
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

import morag
from morag.cli.spark_flags import add_flags, session_of
from morag.spark import session as make_session
from morag.spark.errors import CannotRun
from morag.spark.session import refuse_spark_connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

_master_settings: Final = sys.modules[make_session.__module__]._master_settings
_BOUND: Final = "spark.driver.bindAddress"


@pytest.fixture(autouse=True)
def no_spark_is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


@pytest.mark.parametrize(
    ("master", "conf", "placed"),
    [
        (None, {}, "local[*]"),
        ("local[2]", {}, "local[2]"),
        (None, {"spark.master": "local[3]"}, "local[3]"),
        ("spark://far", {"spark.master": "local[3]"}, "local[3]"),
    ],
)
def test_a_local_session_listens_on_the_loopback_only(
    master: str | None, conf: dict[str, str], placed: str
) -> None:
    settings = _master_settings(master, conf)
    assert settings["spark.master"] == placed
    assert settings[_BOUND] == settings["spark.driver.host"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == "false"


@pytest.mark.parametrize("conf", [{}, {"spark.master": "spark://far"}])
def test_a_session_on_a_cluster_listens_for_executors(conf: dict[str, str]) -> None:
    assert _master_settings(None if conf else "spark://far", conf) == {
        "spark.master": "spark://far"
    }


@pytest.mark.parametrize("name", ["SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"])
def test_an_installation_of_spark_chooses_the_master(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    assert _master_settings(None, {}) == {}
    assert _master_settings("local[1]", {})[_BOUND] == "127.0.0.1"


def test_an_error_of_java_is_shown_in_one_line() -> None:
    report = (
        "An error occurred.\n: java.lang.Bad: [WRONG] no port\n\tat a.b(C.java)\n\tat d.e(F.java)"
    )
    shown = sys.modules[make_session.__module__]._without_frames(report)
    assert shown == "An error occurred. : java.lang.Bad: [WRONG] no port"


@pytest.mark.parametrize(("flags", "master"), [([], None), (["--master", "yarn"], "yarn")])
def test_commands_pass_the_master_to_the_session(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], master: str | None
) -> None:
    masters: list[str | None] = []

    @contextmanager
    def command_session(master: str | None, *_: object) -> Iterator[None]:
        masters.append(master)
        yield

    monkeypatch.setattr("morag.spark.commands.command_session", command_session)
    parser = ArgumentParser()
    add_flags(parser)
    with session_of(parser.parse_args(flags)):
        assert masters == [master]


@pytest.mark.long
def test_commands_use_the_master_of_an_installation_of_spark(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.master local[nowhere]\n")
    store = f"sqlite:{tmp_path / 'catalog.db'}"
    morag.open(store).close()
    job = [sys.executable, "-m", "morag", "spark", "read", "references", "--store", store]
    set_up = os.environ | {"SPARK_CONF_DIR": str(tmp_path)}
    ended = subprocess.run(job, env=set_up, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "Could not parse Master URL: 'local[nowhere]'" in ended.stderr


def test_a_running_session_is_not_changed(spark: SparkSession) -> None:
    assert make_session(master="local[7]") is spark
    assert spark.conf.get("spark.master") == "local[2]"
    assert spark.conf.get(_BOUND) == "127.0.0.1"


def test_jobs_refuse_sessions_of_spark_connect(spark: SparkSession) -> None:
    refuse_spark_connect(spark)
    with pytest.raises(CannotRun, match=r"can read and write the format 'morag', but"):
        refuse_spark_connect(object())

"""Where a session runs, and who can reach it there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import pytest

from morag.spark import session as make_session
from morag.spark.connect import refuse_connect
from morag.spark.errors import CannotRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_placed: Final = sys.modules[make_session.__module__]._placed
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
def test_on_this_machine_only_this_machine_reaches_it(
    master: str | None, conf: dict[str, str], placed: str
) -> None:
    settings = _placed(master, conf)
    assert settings["spark.master"] == placed
    assert settings[_BOUND] == settings["spark.driver.host"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == "false"


@pytest.mark.parametrize("conf", [{}, {"spark.master": "spark://far"}])
def test_on_a_cluster_executors_reach_it(conf: dict[str, str]) -> None:
    assert _placed(None if conf else "spark://far", conf) == {"spark.master": "spark://far"}


@pytest.mark.parametrize("name", ["SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"])
def test_a_spark_that_is_set_up_says_where_it_runs(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    assert _placed(None, {}) == {}
    assert _placed("local[1]", {})[_BOUND] == "127.0.0.1"


def test_a_session_that_runs_stays_as_it_is(spark: SparkSession) -> None:
    assert make_session(master="local[7]") is spark
    assert spark.conf.get("spark.master") == "local[2]"
    assert spark.conf.get(_BOUND) == "127.0.0.1"


def test_jobs_take_sessions_of_spark_itself(spark: SparkSession) -> None:
    refuse_connect(spark)
    with pytest.raises(CannotRun, match=r"can read and write the format 'morag', but"):
        refuse_connect(object())

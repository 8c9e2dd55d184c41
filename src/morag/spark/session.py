"""The Spark session for Morag's jobs, on this machine or on a cluster."""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from morag.package_extras import install_advice
from morag.spark.errors import CannotRun
from morag.spark.java import provide_java

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

_OLDEST: Final = (4, 1)  # The first Spark that pushes filters down to Python data sources.

FILTERS: Final = "spark.sql.python.filterPushdown.enabled"
"""Without this setting Spark refuses a Python data source that supports filters."""

_ALWAYS: Final = {FILTERS: "true", "spark.sql.session.timeZone": "UTC"}
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""On one machine, no other machine needs to reach Spark."""

_MASTER: Final = re.compile(
    r"local|local\[(\d+|\*)(, *\d+)?\]|local-cluster\[.*\]|yarn|(spark|k8s)://.+"
)

INSTALLATION_VARIABLES: Final = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_REMOTE",
    "PYSPARK_SUBMIT_ARGS",
    "PYSPARK_GATEWAY_PORT",  # Set by spark-submit.
)
"""Variables of an existing installation of Spark, whose configuration then names the master."""


def session(
    name: str = "morag",
    *,
    master: str | None = None,
    jars: Sequence[str] = (),
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The running session, or a new one, with the format `morag` registered.

    If neither `master` nor `conf` nor an installation of Spark names a master, it runs on this
    machine. Then it listens on the loopback interface only, and has no UI.
    """
    check_packages()
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    for jar in jars:
        _check_jar(jar)
    settings = {**_ALWAYS}
    if SparkSession.getActiveSession() is None:
        provide_java()
        # Spark's launcher finds the Python of its workers only by this variable.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= _master_settings(master, conf or {})
    if jars:
        settings["spark.jars"] = ",".join(jars)
    builder = SparkSession.builder.appName(name)
    for setting, value in (settings | dict(conf or {})).items():
        builder = builder.config(setting, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise CannotRun(f"Spark does not start: {_without_frames(str(error))}") from error
    refuse_spark_connect(spark)
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Add the format `morag` to a session that `session` did not make."""
    from morag.spark.source.source import MoragDataSource

    spark.dataSource.register(MoragDataSource)
    spark.conf.set(FILTERS, "true")


def refuse_spark_connect(spark: object) -> None:
    """Raise CannotRun for a session of Spark Connect, which lacks features that jobs need.

    Call this before starting anything that could not be finished.
    """
    # Imported late: PySpark may be missing, and `check_packages` explains how to install it.
    from pyspark.sql import SparkSession

    if not isinstance(spark, SparkSession):
        raise CannotRun(
            "A session of Spark Connect can read and write the format 'morag', but it can neither "
            "run Morag's jobs nor point a catalog at a branch: use a session of Spark itself, as "
            "morag.spark.session() makes it"
        )


def _master_settings(master: str | None, conf: Mapping[str, str]) -> dict[str, str]:
    """The master of a new session, and the addresses that it listens on."""
    master = conf.get("spark.master", master)
    if master is None and not any(name in os.environ for name in INSTALLATION_VARIABLES):
        master = "local[*]"
    if master is None:
        return {}
    return {"spark.master": master, **(_LOCAL if master.startswith("local") else {})}


def check_master(master: str | None) -> None:
    """Raise CannotRun for a master that Spark cannot parse, which it reports much later."""
    if master is not None and _MASTER.fullmatch(master) is None:
        raise CannotRun(
            f"'{master}' is not a master of Spark: write it like local[4], local[*], "
            "spark://HOST:PORT, yarn or k8s://URL"
        )


def check_packages() -> None:
    """Raise CannotRun if packages of `morag[spark]` are missing or Spark is too old."""
    for package in ("pyspark", "pyarrow"):
        if find_spec(package) is None:
            raise CannotRun(f"The package {package} is missing; run: {install_advice('spark')}")
    found = version("pyspark")
    numbers = tuple(int(part) for part in found.split(".")[:2])
    if numbers < _OLDEST:
        raise CannotRun(
            f"PySpark {found} is too old: Morag needs {_OLDEST[0]}.{_OLDEST[1]} or later; "
            f"run: {install_advice('spark')}"
        )


def _without_frames(report: str) -> str:
    """An error of Java in one line."""
    return " ".join(report.partition("\n\tat ")[0].split())


def _check_jar(jar: str) -> None:
    """Raise CannotRun if a jar is missing: Spark would only warn, and fail much later."""
    if "://" not in jar and not Path(jar).is_file():
        raise CannotRun(
            f"There is no jar '{jar}'; fetch it, for instance by: mvn dependency:copy "
            "-Dartifact=GROUP:NAME:VERSION -DoutputDirectory=DIRECTORY"
        )

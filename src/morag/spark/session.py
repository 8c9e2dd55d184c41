"""A Spark session that is right for Morag's jobs, on this machine or on a cluster."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from morag.spark.connect import refuse_connect
from morag.spark.errors import CannotRun
from morag.spark.java import provide_java

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

_OLDEST: Final = (4, 1)  # The first Spark that tells Python data sources of filters.

FILTERS: Final = "spark.sql.python.filterPushdown.enabled"
"""Without it Spark refuses a Python data source that knows what to do with filters."""

_ALWAYS: Final = {FILTERS: "true", "spark.sql.session.timeZone": "UTC"}
_HERE: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""On one machine nobody else has to reach Spark."""

_OF_AN_INSTALLATION: Final = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_REMOTE",
    "PYSPARK_SUBMIT_ARGS",
    "PYSPARK_GATEWAY_PORT",  # Set by spark-submit, when it runs us.
)
"""Variables of those whose Spark is set up elsewhere, which then says where to run."""


def session(
    name: str = "morag",
    *,
    master: str | None = None,
    jars: Sequence[str] = (),
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The running session, or a new one. Morag's data source is known to it.

    Where neither `master` nor `conf` nor an installation of Spark says more, it runs on this
    machine. Then it listens on the loopback only, and has no UI.
    """
    check_packages()
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from morag.spark import register

    for jar in jars:
        _check_jar(jar)
    settings = {**_ALWAYS}
    if SparkSession.getActiveSession() is None:
        provide_java()
        # Spark's launcher looks nowhere else for the Python of its workers.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= _placed(master, conf or {})
    if jars:
        settings["spark.jars"] = ",".join(jars)
    builder = SparkSession.builder.appName(name)
    for setting, value in (settings | dict(conf or {})).items():
        builder = builder.config(setting, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise CannotRun(f"Spark does not start: {error}") from error
    refuse_connect(spark)
    register(spark)
    return spark


def _placed(master: str | None, conf: Mapping[str, str]) -> dict[str, str]:
    """Where a session runs that is about to start, and who can reach it there."""
    master = conf.get("spark.master", master)
    if master is None and not any(name in os.environ for name in _OF_AN_INSTALLATION):
        master = "local[*]"
    if master is None:
        return {}
    return {"spark.master": master, **(_HERE if master.startswith("local") else {})}


def check_packages() -> None:
    """Refuse to go on without the packages of `morag[spark]`, or with a Spark that is too old."""
    for package in ("pyspark", "pyarrow"):
        if find_spec(package) is None:
            raise CannotRun(f"The package {package} is missing; run: pip install 'morag[spark]'")
    found = version("pyspark")
    numbers = tuple(int(part) for part in found.split(".")[:2])
    if numbers < _OLDEST:
        raise CannotRun(
            f"PySpark {found} cannot do what Morag needs, which is {_OLDEST[0]}.{_OLDEST[1]} or "
            "later; run: pip install 'morag[spark]'"
        )


def _check_jar(jar: str) -> None:
    """Spark only warns of a jar that is not there, and fails much later."""
    if "://" not in jar and not Path(jar).is_file():
        raise CannotRun(
            f"There is no jar '{jar}'; fetch it, for instance by: mvn dependency:copy "
            "-Dartifact=GROUP:NAME:VERSION -DoutputDirectory=DIRECTORY"
        )

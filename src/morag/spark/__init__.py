"""Spark jobs for work on a whole repository or a whole lake.

    spark = morag.spark.session()
    spark.read.format("morag").option("uri", "http://127.0.0.1:19120").option("table", "entries")

Needs the extra `morag[spark]`. No other package imports Spark.
"""

from __future__ import annotations

from morag.spark.errors import CannotRun
from morag.spark.opening import Origin, opened
from morag.spark.publish import branch
from morag.spark.session import register, session

__all__ = ["CannotRun", "Origin", "branch", "opened", "register", "session"]

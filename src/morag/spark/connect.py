"""Sessions of Spark Connect, which let their client do less than Morag's jobs need."""

from __future__ import annotations

from morag.spark.errors import CannotRun


def refuse_connect(spark: object) -> None:
    """To be called before anything is begun that could not be ended."""
    from pyspark.sql import SparkSession  # Not at the top: errors say how to get PySpark.

    if not isinstance(spark, SparkSession):
        raise CannotRun(
            "A session of Spark Connect can read and write the format 'morag', but it can neither "
            "run Morag's jobs nor point a catalog at a branch: use a session of Spark itself, as "
            "morag.spark.session() makes it"
        )

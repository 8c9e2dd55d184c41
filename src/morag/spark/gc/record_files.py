"""The small files of a run, on any file system that Spark can write Parquet to."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from morag.spark.errors import CannotRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def list_directory(spark: SparkSession, path: str) -> list[str]:
    """The paths in a directory; none if it does not exist."""
    system, found = _file_system(spark, path)
    if not system.exists(found):
        return []
    return [each.getPath().toString() for each in system.listStatus(found)]


def read(spark: SparkSession, path: str) -> bytes | None:
    system, found = _file_system(spark, path)
    if not system.exists(found):
        return None
    stream = system.open(found)
    try:
        text: bytes = stream.readAllBytes()
        return bytes(text)
    finally:
        stream.close()


def write(spark: SparkSession, path: str, text: bytes) -> None:
    """Write to a temporary name and rename, so that no reader sees a part of the file."""
    system, found = _file_system(spark, path)
    _, temporary = _file_system(spark, f"{path}.half")
    _fill(system.create(temporary, True), text)
    system.delete(found, False)
    if not system.rename(temporary, found):
        raise CannotRun(f"'{path}' cannot be written")


def is_file(spark: SparkSession, path: str) -> bool:
    system, found = _file_system(spark, path)
    return bool(system.exists(found) and system.getFileStatus(found).isFile())


def create(spark: SparkSession, path: str, text: bytes) -> bool:
    """Write a file unless it exists. Return whether this call created it.

    If several calls race, one succeeds on HDFS, on disks, and on S3 with conditional writes. Other
    file systems may let several succeed.
    """
    system, found = _file_system(spark, path)
    if system.getScheme() == "file":
        # Hadoop checks and then writes, so that a racing second call would win as well.
        with suppress(FileExistsError), Path(system.pathToFile(found).getPath()).open("xb") as file:
            file.write(text)
            return True
        return False
    try:
        stream = system.create(found, False)
    except Py4JJavaError:
        if system.exists(found):
            return False
        raise
    _fill(stream, text)
    return True


def remove(spark: SparkSession, path: str) -> None:
    """Remove the file if it exists."""
    system, found = _file_system(spark, path)
    system.delete(found, False)


def _file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    context: Any = spark.sparkContext
    found = context._jvm.org.apache.hadoop.fs.Path(path)
    return found.getFileSystem(context._jsc.hadoopConfiguration()), found


def _fill(stream: Any, text: bytes) -> None:
    try:
        stream.write(bytearray(text))
    finally:
        stream.close()

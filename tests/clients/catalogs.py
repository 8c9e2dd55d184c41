"""Branches as catalogs of a Spark session, whichever version of Spark it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

QUICK: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # It is young when it dies: the second compiler never pays.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def places(directory: Path) -> dict[str, str]:
    """Where a session keeps what it does not keep in a lake."""
    return {
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }


def catalog(name: str, address: str, api: int, warehouse: Path, ref: str) -> dict[str, str]:
    """What makes a branch known as a catalog, through one version of the API."""
    options = {
        "catalog-impl": "org.apache.iceberg.nessie.NessieCatalog",
        "uri": f"{address}/api/v{api}",
        "client-api-version": str(api),
        "ref": ref,
        "warehouse": warehouse.as_uri(),
        "cache-enabled": "false",  # Others change the tables, too.
    }
    prefix = f"spark.sql.catalog.{name}"
    named = {f"{prefix}.{option}": value for option, value in options.items()}
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", **named}


def add_catalog(spark: Any, name: str, address: str, api: int, warehouse: Path, ref: str) -> None:
    for option, value in catalog(name, address, api, warehouse, ref).items():
        spark.conf.set(option, value)

"""Export and import of whole repositories on Spark, for tens of millions of commits."""

from __future__ import annotations

from morag.spark.transfer.exporting import export_repository
from morag.spark.transfer.importing import import_repository
from morag.spark.transfer.parquet_tables import export_tables

__all__ = ["export_repository", "export_tables", "import_repository"]

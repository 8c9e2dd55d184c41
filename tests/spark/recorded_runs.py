"""A run on disk that Spark has not made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyarrow import parquet

from morag.spark.gc.plan import Plan, Policies
from morag.spark.gc.records import StepRecord

if TYPE_CHECKING:
    from pathlib import Path


def recorded_run(directory: Path) -> str:
    """A run on disk that has found two orphans."""
    path = directory / "runs" / "a-run"
    (path / "orphans").mkdir(parents=True)
    plan = Plan(
        id="a-run",
        origin="",
        now_nanos=0,
        policies=Policies(),
        grace_nanos=0,
        snapshots="all",
        dropped=False,
        locations=(),
        ignore_missing=False,
        quarantine=None,
        records=str(directory / "runs"),
    )
    record = StepRecord("orphans", "", "", 2, "path STRING, size_bytes BIGINT")
    (path / "plan.json").write_bytes(msgspec.json.encode(plan))
    (path / "orphans.json").write_bytes(msgspec.json.encode(record))
    rows = pa.table({"path": ["a", "b"], "size_bytes": [1, 2]})
    parquet.write_table(rows, path / "orphans" / "part-0.parquet")
    return str(path)

"""Dry run of garbage collection: how time and the driver's memory grow with the number of files.

    python -m bench.spark.gc [--tables 2000] [--files 200000]

Each size runs in its own process, after a small lake that warms Java up. Spark is configured
to fail if the tasks of a job send more than 8 MB to the driver, whatever the size.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

import morag
from morag import ContentKey, IcebergTable, Put
from morag.spark import gc, session
from morag.spark.opening import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

MB: Final = 1 << 20
GROWTH: Final = 2.2
_DEAD: Final = 10  # Every tenth file is an orphan.
_PUTS_PER_COMMIT: Final = 200
_SCHEMA: Final = Schema(NestedField(1, "id", LongType(), required=False))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="bench.spark.gc")
    parser.add_argument("--tables", type=int, default=2_000)
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--one", action="store_true", help="one size, and its figures as JSON")
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(options.tables, options.files)))
        return 0
    small = _apart(options.tables, options.files)
    large = _apart(options.tables, 2 * options.files)
    ratio = large["seconds"] / small["seconds"]
    print(f"GC dry run, {options.tables:,} tables, local[2]")
    for found in (small, large):
        print(
            f"  {found['files']:>9,} files: {found['seconds']:6.1f} s "
            f"({found['cpu_seconds']:.1f} s of CPU); driver: Python "
            f"{found['python_mb']:.0f} MB (+{found['grown_mb']:.0f} in the run), "
            f"Java {found['java_mb']:.0f} MB in use after it"
        )
        print(f"            {found['steps']}")
    cpu = large["cpu_seconds"] / small["cpu_seconds"]
    print(f"  x 2 files costs x {ratio:.2f} time (bar: {GROWTH}), x {cpu:.2f} CPU")
    return 0 if ratio <= GROWTH else 1


def measure(tables: int, files: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        expected = _make_lake(directory / "measured", tables, files)
        _make_lake(directory / "warm", tables=20, files=2_000)
        spark = session(
            master="local[2]",
            conf={
                "spark.driver.memory": "1g",
                "spark.driver.maxResultSize": "8m",
                "spark.sql.shuffle.partitions": "8",
                "spark.ui.showConsoleProgress": "false",
                "spark.local.dir": str(directory / "local"),
                "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
            },
        )
        _collect(spark, directory / "warm")
        before, worked, started = _python_bytes(), _cpu_seconds(), perf_counter()
        run = _collect(spark, directory / "measured")
        took, after = perf_counter() - started, _python_bytes()
        worked = _cpu_seconds() - worked
        records = {step.name: step for step in run.steps()}
        assert records["orphans"].rows == expected, "the number of orphans differs"
        steps = ", ".join(f"{name} {_seconds(step):.1f}" for name, step in records.items())
        java = _java_bytes(spark)
        spark.stop()
        return {
            "files": files,
            "seconds": took,
            "cpu_seconds": worked,
            "python_mb": after / MB,
            "grown_mb": (after - before) / MB,
            "java_mb": java / MB,
            "steps": steps,
        }


def _collect(spark: SparkSession, directory: Path) -> gc.Run:
    origin = Origin(store=f"sqlite:{directory}/catalog.db")
    return gc.collect(spark, origin, str(directory / "runs"), grace="PT0S")


def _apart(tables: int, files: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.spark.gc", "--one"]
    command += ["--tables", str(tables), "--files", str(files)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def _seconds(step: gc.StepRecord) -> float:
    from morag.model.times import parse_instant

    return (parse_instant(step.finished) - parse_instant(step.started)) / 1e9


def _python_bytes() -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found, "no VmRSS in /proc/self/status"
    return 1024 * int(found[1])


def _cpu_seconds() -> float:
    """CPU seconds of this process, of Java and of its Python workers. Other work on the machine
    changes them less than the elapsed time."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            stats[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    ours = {os.getpid()}
    for _ in range(8):  # Python starts Java, that a daemon, and that the workers.
        ours |= {pid for pid, fields in stats.items() if int(fields[1]) in ours}
    ticks = sum(int(stats[pid][11]) + int(stats[pid][12]) for pid in ours if pid in stats)
    return ticks / os.sysconf("SC_CLK_TCK")


def _java_bytes(spark: SparkSession) -> int:
    """The used heap of Java, which on one machine includes the executors."""
    java: Any = spark.sparkContext._jvm
    java.System.gc()
    runtime = java.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def _make_lake(directory: Path, tables: int, files: int) -> int:
    """Make tables of one snapshot with empty data files each; return the number of orphans."""
    directory.mkdir()
    dead = 0
    with morag.open(f"sqlite:{directory}/catalog.db?sync=off") as catalog:
        puts: list[Put] = []
        for number in range(tables):
            count = files // tables - 3  # Three are metadata.
            dead += sum(1 for each in range(count) if each % _DEAD == 0)
            location = _make_table(directory / "lake" / f"t{number}", count)
            content = IcebergTable(
                metadata_location=location, snapshot_id=1, schema_id=0, spec_id=0, sort_order_id=0
            )
            puts.append(Put(ContentKey.of(f"t{number}"), content))
            if len(puts) == _PUTS_PER_COMMIT or number == tables - 1:
                catalog.commit("main", puts, f"{len(puts)} tables")
                puts = []
    return dead


def _make_table(directory: Path, count: int) -> str:
    data, metadata = directory / "data", directory / "metadata"
    data.mkdir(parents=True)
    metadata.mkdir()
    io, live = PyArrowFileIO(), []
    for number in range(count):
        path = data / f"{uuid4()}.parquet"
        path.touch()
        if number % _DEAD:
            live.append(path.as_uri())
    manifest = io.new_output((metadata / "m0.avro").as_uri())
    with write_manifest(2, UNPARTITIONED_PARTITION_SPEC, _SCHEMA, manifest, 1, "null") as writer:
        for entry in _entries(live):
            writer.add_entry(entry)
    listed = io.new_output((metadata / "snap-1.avro").as_uri())
    with write_manifest_list(2, listed, 1, None, 1, "null") as lists:
        lists.add_manifests([writer.to_manifest_file()])
    content = {
        "format-version": 2,
        "table-uuid": str(uuid4()),
        "location": directory.as_uri(),
        "current-snapshot-id": 1,
        "snapshots": [{"snapshot-id": 1, "timestamp-ms": 1, "manifest-list": listed.location}],
    }
    path = metadata / "00000.metadata.json"
    path.write_text(json.dumps(content))
    return path.as_uri()


def _entries(paths: Sequence[str]) -> Iterator[ManifestEntry]:
    for path in paths:
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=1,
            file_size_in_bytes=0,
        )
        yield ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED, snapshot_id=1, data_file=file
        )


if __name__ == "__main__":
    sys.exit(main())

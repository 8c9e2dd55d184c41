"""The page of benchmarks shows the figures of a run, with plots that are valid XML."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from msgspec import json

from bench.nessie.page import page
from bench.nessie.records import Figure, Measured, Result, Run, Slice, read

if TYPE_CHECKING:
    from pathlib import Path

RUN = Run("2026-01-31T12:00:00+00:00", "two processors", "python -m bench.nessie")


def side(name: str, *rates: int) -> Measured:
    slices = [Slice(rate, 1.0, 0.1, 0.05, rate) for rate in rates]
    return Measured(name, slices, 0.001, 0.002, 0.003, 0, [])


def result(part: str, workload: str, clients: int, *sides: Measured) -> Result:
    return Result("rocksdb", workload, part, clients, "requests", list(sides))


def test_it_shows_ratios_goals_single_figures_and_noise(tmp_path: Path) -> None:
    shown = page(
        [
            RUN,
            result("config", "config", 8, side("nessie", 1), side("morag", 1)),
            # Measured again: the median of the ratios 2, 4 and 9.
            result("config", "config", 8, side("nessie", 50, 25, 10), side("morag", 100, 100, 90)),
            result("commit", "commit", 1, side("nessie", 100), side("morag", 350)),
            result("content-clients", "content", 1, side("nessie", 10), side("morag", 20)),
            result("content-clients", "content", 4, side("nessie", 20), side("morag", 40)),
            result("config", "config", 8, side("morag again", 100), side("morag", 102)),
            Figure("rocksdb", "memory after load", "B", {"nessie": 2e9, "morag": 250e6}),
            Figure("rocksdb", "memory after load", "B", {"nessie": 1e9, "morag": 90e6}),
        ],
        tmp_path,
    )
    assert "Measured on 2026-01-31, on two processors, by `python -m bench.nessie`." in shown
    assert "| config (8), requests | 28 | 97 | 4.0 | 3 |" in shown
    assert "| commit (1), commits | 100 | 350 | **3.5** | 4 |" in shown
    assert "| memory after load, RocksDB, not synced | 2,000 MB | 250 MB | ≤ 280 MB |" in shown
    assert "| config | 1.02 | 1.02 |" in shown
    plots = {path.name: ElementTree.parse(path) for path in tmp_path.iterdir()}
    assert plots.keys() == {"ratios-rocksdb.svg", "latencies-rocksdb.svg", "clients-rocksdb.svg"}
    assert all(f"(benchmarks/{name})" in shown for name in plots)


def test_records_survive_the_file(tmp_path: Path) -> None:
    records = [RUN, result("config", "config", 8, side("nessie", 1), side("morag", 2))]
    path = tmp_path / "figures.jsonl"
    path.write_bytes(b"".join(json.encode(record) + b"\n" for record in records))
    assert read(path) == records

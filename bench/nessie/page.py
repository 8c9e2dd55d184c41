"""Renders docs/benchmarks.md and its plots from the output of runs.

    python -m bench.nessie.page FIGURES.jsonl

A later figure replaces an earlier one of the same kind, so that parts can be measured again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.nessie.console import shown
from bench.nessie.goals import LIMITS, RATIOS
from bench.nessie.plan import SERIES
from bench.nessie.plots import by_clients, latencies, ratios
from bench.nessie.records import Figure, Result, Run, read
from morag.load.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.nessie.records import Record

_DOCS: Final = Path(__file__).parents[2] / "docs"
_PLOTS: Final = "benchmarks"
_TITLES: Final = {
    "memory": "In memory",
    "rocksdb": "RocksDB, not synced",
    "rocksdb-durable": "RocksDB, Morag synced",
    "postgres": "PostgreSQL",
}
_REMARKS: Final = {
    "memory": "Nothing is stored.",
    "rocksdb": "Neither server syncs a commit to disk: Morag with `?sync=off`, Nessie always.",
    "rocksdb-durable": "Morag syncs every commit to disk, as by default. Nessie does not.",
    "postgres": "Each server has its own database on one PostgreSQL, which syncs every commit.",
}
_INTRODUCTION: Final = Path(__file__).with_name("introduction.md")


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    records = read(Path(sys.argv[1]))
    (_DOCS / _PLOTS).mkdir(exist_ok=True)
    (_DOCS / "benchmarks.md").write_text(page(records, _DOCS / _PLOTS))
    return 0


def page(records: Sequence[Record], plots: Path) -> str:
    """The page. Its plots are saved in the directory."""
    runs = [record for record in records if isinstance(record, Run)]
    every = {_kind(r): r for r in records if isinstance(r, Result) and len(r.sides) == 2}
    results = [r for r in every.values() if r.sides[0].side == "nessie"]
    lines = [_INTRODUCTION.read_text().rstrip(), *_about(runs)]
    for store, title in _TITLES.items():
        of_store = [r for r in results if r.store == store]
        if of_store:
            lines += ["", f"### {title}", "", _REMARKS[store], ""]
            lines += _store_part(store, title, of_store, plots)
    lines += _single_figures([r for r in records if isinstance(r, Figure)])
    lines += _noise([r for r in every.values() if r.sides[0].side == "morag again"])
    return "\n".join(lines) + "\n"


def _kind(result: Result) -> tuple[str, str, int, str]:
    return result.store, result.part, result.clients, result.sides[0].side


def _about(runs: Sequence[Run]) -> list[str]:
    if not runs:
        return []
    last = runs[-1]
    commands = ", ".join(f"`{command}`" for command in dict.fromkeys(r.command for r in runs))
    lines = ["", "## Results", ""]
    return [*lines, f"Measured on {last.date[:10]}, on {last.machine}, by {commands}."]


def _store_part(store: str, title: str, results: Sequence[Result], plots: Path) -> list[str]:
    order = list(WORKLOADS)
    plain = sorted(
        (r for r in results if r.part not in SERIES), key=lambda r: order.index(r.workload)
    )
    lines: list[str] = []
    if plain:
        lines += _table(plain)
        for name, plot in (("ratios", ratios), ("latencies", latencies)):
            plot(plain, f"{title}: {_CAPTIONS[name]}").save(plots / f"{name}-{store}.svg")
            lines += ["", f"![{title}: {_CAPTIONS[name]}]({_PLOTS}/{name}-{store}.svg)"]
    series = [[r for r in results if r.part == part] for part in SERIES]
    series = [sorted(each, key=lambda r: r.clients) for each in series if each]
    if series:
        caption = f"{title}: requests per second by clients"
        by_clients(series, caption).save(plots / f"clients-{store}.svg")
        lines += ["", f"![{caption}]({_PLOTS}/clients-{store}.svg)"]
    return lines


_CAPTIONS: Final = {
    "ratios": "how many times faster Morag is; the ticks are goals",
    "latencies": "latency, from p50 to p99.9 with a dot at p99",
}


def _table(results: Sequence[Result]) -> list[str]:
    lines = [
        "| workload (clients), unit | Nessie/s | Morag/s | ratio | goal | CPU µs per unit"
        " | p50 ms | p99 ms | p99.9 ms |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        workload = WORKLOADS[result.workload]
        theirs, ours = result.sides
        goal = RATIOS[result.store].get(result.part)
        ratio = f"{result.ratio:.1f}"
        if goal is not None and result.ratio is not None and result.ratio < goal:
            ratio = f"**{ratio}**"
        if theirs.failures or ours.failures:
            ratio += f" ({theirs.failures} and {ours.failures} requests failed)"
        cells = [
            f"{workload.title} ({result.clients}), {workload.units}",
            f"{theirs.rate:,.0f}",
            f"{ours.rate:,.0f}",
            ratio,
            "" if goal is None else f"{goal:g}",
            f"{theirs.server_micros:,.0f}, {ours.server_micros:,.0f}",
            *(
                f"{_millis(first)}, {_millis(last)}"
                for first, last in (
                    (theirs.p50_seconds, ours.p50_seconds),
                    (theirs.p99_seconds, ours.p99_seconds),
                    (theirs.p999_seconds, ours.p999_seconds),
                )
            ),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", "Pairs are Nessie, Morag. A bold ratio is below its goal."]


def _millis(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f}" if seconds >= 0.1 else f"{seconds * 1e3:.3g}"


def _single_figures(figures: Sequence[Figure]) -> list[str]:
    """The last value of each figure, but the largest of those that were taken after each group."""
    found: dict[tuple[str, str], Figure] = {}
    for figure in figures:
        key = figure.store, figure.name
        if "nessie" not in figure.values:
            continue
        before = found.get(key)
        is_larger = before is None or figure.values["morag"] > before.values["morag"]
        if figure.name != "memory after load" or is_larger:
            found[key] = figure
    if not found:
        return []
    lines = ["", "### Start, memory, disk", "", "| figure | Nessie | Morag | goal |"]
    lines.append("|---|---|---|---|")
    for (store, name), figure in found.items():
        # In memory, the memory after load is mostly the data itself.
        limit = None if store == "memory" and name == "memory after load" else LIMITS.get(name)
        goal = "" if limit is None else f"≤ {shown(limit, figure.unit)}"
        values = [shown(figure.values[side], figure.unit) for side in ("nessie", "morag")]
        lines.append(f"| {name}, {_TITLES[store]} | {' | '.join(values)} | {goal} |")
    return [*lines, "", _FIGURES]


_FIGURES: Final = (
    "Memory is resident, after load that of the group of workloads after which Morag held most."
    " Bytes per commit are what the directory of a stopped server grows by, on a branch of 30,000"
    " keys."
)


def _noise(results: Sequence[Result]) -> list[str]:
    if not results:
        return []
    lines = ["", "### Noise", "", "Two equal servers of Morag, measured in the same way:", ""]
    lines += ["| workload | ratio of rates | ratio of CPU time |", "|---|---|---|"]
    for result in results:
        cells = (WORKLOADS[result.workload].title, f"{result.ratio:.2f}", f"{result.cpu_ratio:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())

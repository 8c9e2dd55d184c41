"""`make bench-nessie`: the whole comparison, or the stores and parts named as arguments."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import json

from bench.nessie.goals import LIMITS, RATIOS
from bench.nessie.measuring import Pace, measure
from bench.nessie.plan import GROUPS, LEFT_OUT, PARTS
from bench.nessie.records import Figure, Result, Run
from bench.nessie.servers import Side
from bench.nessie.single_figures import bytes_per_commit, start
from bench.nessie.stores import STORES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.nessie.records import Record

_SINGLE: Final = {"start": start, "bytes": bytes_per_commit}
_LINE: Final = "{:16} {:19} {:>3}  {:>24}  {:>24}  {:>8}  {:>6}  {:>9}  {}"


def main() -> int:
    arguments = _parser().parse_args()
    chosen = set(arguments.chosen)
    if unknown := chosen - {*STORES, *PARTS, *_SINGLE}:
        known = ", ".join((*STORES, *PARTS, *_SINGLE))
        sys.exit(f"unknown store or part '{unknown.pop()}'; known: {known}")
    sides = _sides(arguments)
    pace = Pace(arguments.rounds, arguments.seconds)
    stores = [name for name in STORES if name in chosen] or list(STORES)
    failed = False
    output = arguments.output and arguments.output.open("ab", buffering=0)
    print(_LINE.format("store", "part", "cl.", *_heads(sides), "ratio", "goal", "CPU ratio", ""))
    for record in _records(stores, chosen - STORES.keys(), sides, pace):
        if output:
            output.write(json.encode(record) + b"\n")
        failed |= _show(record)
    return failed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.nessie", description=__doc__)
    parser.add_argument(
        "chosen",
        nargs="*",
        metavar="STORE|PART",
        help=f"stores ({', '.join(STORES)}) and parts ({', '.join((*PARTS, *_SINGLE))})",
    )
    parser.add_argument("--rounds", type=int, default=Pace().rounds, help="slices of each side")
    parser.add_argument("--seconds", type=float, default=Pace().seconds, help="of one slice")
    parser.add_argument("--output", type=Path, help="append the figures to this file, as JSON")
    against = parser.add_mutually_exclusive_group()
    against.add_argument("--alone", action="store_true", help="measure Morag only")
    against.add_argument("--same", action="store_true", help="against a second Morag: the noise")
    against.add_argument(
        "--other", type=Path, metavar="TREE", help="against the Morag of another source tree"
    )
    return parser


def _sides(arguments: argparse.Namespace) -> list[Side]:
    if arguments.alone:
        return [Side.morag()]
    if arguments.same:
        return [Side.morag("morag-again"), Side.morag()]
    if arguments.other is not None:
        return [Side.morag("other", arguments.other), Side.morag()]
    return [Side.nessie(), Side.morag()]


def _records(
    stores: Sequence[str], parts: set[str], sides: Sequence[Side], pace: Pace
) -> Iterator[Record]:
    yield Run(datetime.now(UTC).isoformat(timespec="seconds"), _machine(), shlex.join(sys.argv[1:]))
    for store in stores:
        wanted = parts or {*PARTS, *_SINGLE} - LEFT_OUT.get(store, frozenset())
        with STORES[store]() as new_store:
            for name, function in _SINGLE.items():
                if name in wanted:
                    yield from function(store, new_store, sides)
            for group in GROUPS.values():
                items = [item for item in group if item.part in wanted]
                if items:
                    yield from measure(store, new_store, sides, items, pace)


def _heads(sides: Sequence[Side]) -> list[str]:
    names = [f"{side.name} (CPU/unit)" for side in sides]
    return names if len(names) == 2 else ["", *names]


def _show(record: Record) -> bool:
    """Print a record. True if a request failed, which makes its figures invalid."""
    match record:
        case Result():
            _print(record)
            for side in record.sides:
                for failure in side.shown_failures:
                    print(f"  {side.side}: {side.failures} failures, such as {failure!r}")
            return any(side.failures for side in record.sides)
        case Figure():
            found = [_shown(value, record.unit) for value in record.values.values()]
            found = found if len(found) == 2 else ["", *found]
            limit = LIMITS.get(record.name)
            word = "" if limit is None else _shown(limit, record.unit)
            print(_LINE.format(record.store, record.name, "", *found, "", word, "", ""), flush=True)
    return False


def _print(result: Result) -> None:
    cells = [f"{each.rate:,.0f}/s ({each.server_micros:,.0f} µs)" for each in result.sides]
    cells = cells if len(cells) == 2 else ["", *cells]
    ratio = "" if result.ratio is None else f"{result.ratio:.2f} ×"
    goal = RATIOS[result.store].get(result.part)
    latencies = ", ".join(
        f"p99 {each.p99_seconds * 1e3:.1f} ms, driver {each.driver_micros:.0f} µs"
        for each in result.sides
    )
    shown = "" if goal is None else f"{goal:g}"
    cpu = "" if result.cpu_ratio is None else f"{result.cpu_ratio:.2f} ×"
    line = (result.store, result.part, result.clients, *cells, ratio, shown, cpu, latencies)
    print(_LINE.format(*line), flush=True)


def _shown(value: float, unit: str) -> str:
    return f"{value:.2f} s" if unit == "s" else f"{value / 1e6:,.4g} MB"


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())

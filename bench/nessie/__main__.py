"""`make bench-nessie`: the whole comparison, or the stores and parts named as arguments.

By default Morag is compared with Nessie. The noise is how far two equal servers differ.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGTERM, signal
from typing import TYPE_CHECKING

from msgspec import json

from bench.nessie.console import show, show_head
from bench.nessie.measuring import Pace, measure
from bench.nessie.plan import GROUPS, LEFT_OUT, NOISE, PARTS
from bench.nessie.records import Run
from bench.nessie.servers import Side
from bench.nessie.single_figures import bytes_per_commit, start
from bench.nessie.stores import STORES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.nessie.records import Record


def main() -> int:
    parser = _parser()
    arguments = parser.parse_args()
    signal(SIGTERM, lambda *_: sys.exit(1))  # So that the servers are stopped, too.
    chosen = set(arguments.chosen)
    if unknown := chosen - {*STORES, *PARTS}:
        parser.error(f"unknown store or part '{unknown.pop()}'")
    sides = _sides(arguments)
    stores = [name for name in STORES if name in chosen] or list(STORES)
    pace = Pace(arguments.rounds, arguments.seconds)
    failed = False
    with Path(arguments.output or os.devnull).open("ab", buffering=0) as output:
        show_head(sides)
        for record in _records(stores, chosen - STORES.keys(), sides, pace):
            output.write(json.encode(record) + b"\n")
            failed |= show(record)
    return failed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.nessie", description=__doc__)
    parser.add_argument(
        "chosen",
        nargs="*",
        metavar="STORE|PART",
        help=f"stores ({', '.join(STORES)}) and parts ({', '.join(PARTS)}) [all]",
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
        return Side.two_equal()
    if arguments.other is not None:
        return [Side.morag("other", arguments.other), Side.morag()]
    return [Side.nessie(), Side.morag()]


def _records(
    stores: Sequence[str], parts: set[str], sides: Sequence[Side], pace: Pace
) -> Iterator[Record]:
    date = datetime.now(UTC).isoformat(timespec="seconds")
    yield Run(date, _machine(), _command(sys.argv[1:]))
    for store in stores:
        wanted = parts or {*PARTS} - LEFT_OUT[store]
        with STORES[store]() as new_store:
            if "start" in wanted:
                yield from start(store, new_store, sides)
            if "bytes" in wanted and store.startswith("rocksdb"):
                yield from bytes_per_commit(store, new_store, sides)
            for group in GROUPS:
                items = [item for item in group if item.part in wanted]
                if items:
                    yield from measure(store, new_store, sides, items, pace)
            if "noise" in wanted:
                yield from measure(store, new_store, Side.two_equal(), NOISE, pace)


def _command(arguments: Sequence[str]) -> str:
    """The command that repeats the run, without the file for its figures."""
    kept = list(arguments)
    if "--output" in kept:
        at = kept.index("--output")
        del kept[at : at + 2]
    return shlex.join(["python", "-m", "bench.nessie", *kept])


def _machine() -> str:
    """The processor as Linux names it, and the rest as Python does."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.machine()
    return (
        f"{os.cpu_count()} × {processor}, {platform.system()}, Python {platform.python_version()}"
    )


if __name__ == "__main__":
    sys.exit(main())

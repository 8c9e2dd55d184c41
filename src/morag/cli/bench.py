"""`morag bench`: measures a running server, Morag or Nessie, under load."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from msgspec import json

from morag.cli.main import FAILED, Misuse
from morag.client import Client
from morag.config_sources import nearest
from morag.load.data_set import Sizes
from morag.load.playing import own_references, play
from morag.load.target import Target
from morag.load.workloads import WORKLOADS

if TYPE_CHECKING:
    import argparse

    from morag.load.playing import Played

_LINE: Final = "{:18} {:>7} {:>12} {:14} {:>9} {:>9} {:>9} {:>8}\n"
_HEAD: Final = ("workload", "clients", "rate", "", "p50 ms", "p99 ms", "p99.9 ms", "failures")
_LEAST_KEYS: Final = 100


def configure(parser: argparse.ArgumentParser, explain: bool) -> None:
    parser.usage = (
        "%(prog)s [--uri URI] [WORKLOAD ...] [--clients N] [--seconds S] [--keys N] [--json]"
    )
    parser.epilog = "\n".join(
        [
            "Workloads, with their usual number of clients:",
            *(f"  {each.name:18} {each.title} ({each.clients})" for each in WORKLOADS.values()),
            "",
            "All data is on branches of its own, named morag-bench-..., which are removed at the",
            "end. Other references are not changed. The commits remain in the store as garbage.",
        ]
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="Workloads to play [all]")
    parser.add_argument(
        "--uri",
        default="http://127.0.0.1:19120",
        help="The server, without TLS [%(default)s]",
    )
    parser.add_argument(
        "--clients", type=int, metavar="N", help="How many clients send requests [by workload]"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        metavar="S",
        help="How long a workload takes [%(default)s]",
    )
    parser.add_argument(
        "--keys",
        type=int,
        default=30_000,
        metavar="N",
        help="The size of the branch that listings read [%(default)s]",
    )
    parser.add_argument("--json", action="store_true", help="Print a JSON object for each workload")


def run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    target = Target(arguments.uri)
    with Client(arguments.uri, proxy="") as client:
        client.config()  # Its errors explain what is wrong with a URI.
    failed = False
    if not arguments.json:
        sys.stdout.write(_LINE.format(*_HEAD))
    with own_references(target, Sizes(keys=arguments.keys)) as data:
        for name in arguments.workloads or WORKLOADS:
            played = play(data, name, arguments.clients, arguments.seconds)
            text = json.encode(played).decode() + "\n" if arguments.json else _shown(played)
            sys.stdout.write(text)
            sys.stdout.flush()
            failed |= bool(played.failures)
    return FAILED if failed else 0


def _check(arguments: argparse.Namespace) -> None:
    for name in arguments.workloads:
        if name not in WORKLOADS:
            known = ", ".join(WORKLOADS)
            raise Misuse(
                f"there is no workload {name!r}{nearest(name, WORKLOADS)}; there are: {known}"
            )
    if arguments.clients is not None and arguments.clients < 1:
        raise Misuse("--clients must be at least 1")
    if not arguments.seconds > 0:
        raise Misuse("--seconds must be above 0")
    if arguments.keys < _LEAST_KEYS:
        raise Misuse(f"--keys must be at least {_LEAST_KEYS}")


def _shown(played: Played) -> str:
    millis = (played.p50_millis, played.p99_millis, played.p999_millis)
    cells = ("-" if each is None else f"{each:.2f}" for each in millis)
    rate, unit = f"{played.units_per_second:,.0f}", f"{played.counted}/s"
    line = _LINE.format(played.workload, played.clients, rate, unit, *cells, played.failures)
    return line + "".join(f"  failed: {each!r}\n" for each in played.shown_failures)

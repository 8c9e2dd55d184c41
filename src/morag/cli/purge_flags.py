"""The flags that `morag admin purge` and `morag spark purge` share."""

from __future__ import annotations

import argparse
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Final

from morag.errors import BadRequest
from morag.model.durations import parse_duration
from morag.model.times import SECOND_NANOS
from morag.versions.maintenance.purge_report import PurgeRequest

_JOURNAL: Final = "morag-purge-journal"
_DEFAULT: Final = PurgeRequest()


def add_purge_flags(parser: argparse.ArgumentParser, place: str) -> None:
    """`place` says where the directory of the journal must be."""
    parser.add_argument(
        "--dry-run",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="only report what would be removed [yes]",
    )
    parser.add_argument(
        "--grace",
        metavar="DURATION",
        type=_duration,
        default=_DEFAULT.grace_seconds,
        help="keep what was written within this time [P1D]; beside servers, at least PT2H",
    )
    parser.add_argument(
        "--settle",
        metavar="DURATION",
        type=_duration,
        default=_DEFAULT.settle_seconds,
        help="wait for requests under way before the last look at the references [PT10S]",
    )
    parser.add_argument(
        "--rate", metavar="ROWS", type=_rate, help="remove at most this many objects per second"
    )
    parser.add_argument(
        "--include-undated",
        action="store_true",
        help="also remove objects without a time, which an old Nessie wrote",
    )
    parser.add_argument(
        "--journal",
        metavar="DIR",
        type=Path,
        default=Path(_JOURNAL),
        help=f"directory for removed objects until the end, {place} [{_JOURNAL}]",
    )


def purge_request(arguments: argparse.Namespace) -> PurgeRequest:
    return PurgeRequest(
        dry_run=arguments.dry_run,
        grace_seconds=arguments.grace,
        settle_seconds=arguments.settle,
        rows_per_second=arguments.rate,
        include_undated=arguments.include_undated,
    )


def _duration(text: str) -> float:
    try:
        seconds = parse_duration(text) / SECOND_NANOS
    except BadRequest as error:
        raise ArgumentTypeError(str(error)) from None
    if seconds < 0:
        raise ArgumentTypeError(f"'{text}' must not be negative")
    return seconds


def _rate(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a number of objects per second")
    return found

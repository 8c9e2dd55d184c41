"""`morag spark generate`: generates a history straight into a store, in bulk."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Any, Final

from msgspec import json

from morag.cli.generate import history_options
from morag.cli.generate_flags import add_history_flags
from morag.cli.spark_flags import (
    add_flags,
    add_store_flags,
    progress_output,
    session_of,
    store_origin_of,
)
from morag.cli.spark_text import size
from morag.errors import BadRequest
from morag.model.times import parse_instant

if TYPE_CHECKING:
    import argparse

    from morag.spark.generation import Generated

_START: Final = "2020-01-01T00:00:00Z"


def add_jobs(jobs: Any) -> None:
    parser: argparse.ArgumentParser = jobs.add_parser(
        "generate",
        help="Fill a store with generated contents, without a server",
        description="Fill a store with generated contents, without a server. The contents point to "
        "files that do not exist: use test catalogs. Each branch is built by one task, so choose "
        "at least as many branches as there are cores.",
        allow_abbrev=False,
    )
    parser.set_defaults(job=_generate)
    add_store_flags(parser)
    add_history_flags(parser)
    parser.add_argument(
        "--start-time",
        type=_time,
        metavar="TIME",
        help=f"the time of the first commit [now; with --seed {_START}]",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    add_flags(parser, catalog=False)


def _generate(arguments: argparse.Namespace) -> int:
    origin = store_origin_of(arguments)
    options = history_options(arguments)
    start_nanos = arguments.start_time
    if start_nanos is None and arguments.seed is not None:
        start_nanos = parse_instant(_START)
    with session_of(arguments) as spark, progress_output(arguments) as progress:
        from morag.spark.generation import generate

        done = generate(spark, origin, options, start_nanos=start_nanos, progress=progress)
    sys.stdout.write(json.encode(done).decode() + "\n" if arguments.json else _text(done))
    return 0


def _text(done: Generated) -> str:
    return (
        f"{done.commits:,} commits with {done.puts:,} puts in {done.seconds:.1f} s: "
        f"{done.commits_per_second:,.0f} commits/s, {done.puts_per_second:,.0f} puts/s\n"
        f"{done.rows:,} objects of {size(done.bytes)}, {len(done.branches)} branches, "
        f"{done.tags} tags\n"
    )


def _time(text: str) -> int:
    try:
        return parse_instant(text)
    except BadRequest as error:
        raise ArgumentTypeError(str(error)) from None

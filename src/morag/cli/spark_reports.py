"""`morag spark read`, `diff` and `health`: jobs that only look."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from morag.api.paths import key_of_text
from morag.cli.spark_flags import (
    add_flags,
    add_lake_flags,
    add_output_flags,
    options_of_files,
    origin_of,
    session_of,
    show,
    telling,
)
from morag.cli.spark_shown import differences, rule
from morag.spark.source.offered import OFFERED

if TYPE_CHECKING:
    import argparse

UNWELL: Final = 3
"""The exit code when the lake has lost something."""


def add_jobs(jobs: Any) -> None:
    _add_read(jobs.add_parser("read", help="Show a table of the catalog", allow_abbrev=False))
    _add_diff(jobs.add_parser("diff", help="Compare the tables of two refs", allow_abbrev=False))
    _add_health(jobs.add_parser("health", help="Report on the lake", allow_abbrev=False))


def _add_read(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(job=_read)
    parser.add_argument("table", choices=OFFERED)
    parser.add_argument("--ref", help="for entries and log [the default branch]")
    parser.add_argument("--from", dest="from_ref", metavar="REF", help="for diff")
    parser.add_argument("--to", dest="to_ref", metavar="REF", help="for diff")
    parser.add_argument(
        "--operations", action="store_true", help="the log with a row per operation"
    )
    parser.add_argument("--columns", metavar="NAME,...", default="", help="only these")
    parser.add_argument("--where", metavar="SQL", help="only rows that fulfil this")
    add_flags(parser)
    add_output_flags(parser)


def _add_diff(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(job=_diff)
    parser.add_argument("from_ref", metavar="FROM", help="like main, main~1 or main@HASH")
    parser.add_argument("to_ref", metavar="TO")
    parser.add_argument(
        "--rows",
        metavar="KEY",
        help="the rows of this table that differ, by its key as `diff` shows it",
    )
    parser.add_argument(
        "--on",
        metavar="COLUMN,...",
        default="",
        help="what rows are known by [the table's identifier fields]",
    )
    add_lake_flags(parser)
    add_flags(parser)
    add_output_flags(parser)


def _add_health(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(job=_health)
    parser.add_argument("ref", metavar="REF", nargs="?", help="[the default branch]")
    parser.add_argument("--deep", action="store_true", help="look for every single data file")
    parser.add_argument(
        "--orphans", metavar="RUN", help="count the orphan files that `gc collect` has found"
    )
    parser.add_argument("--all", action="store_true", help="a row per content instead of totals")
    add_lake_flags(parser)
    add_flags(parser)
    add_output_flags(parser)


def _read(arguments: argparse.Namespace) -> int:
    origin = origin_of(arguments)
    given = {"ref": arguments.ref, "from": arguments.from_ref, "to": arguments.to_ref}
    options = {name: value for name, value in given.items() if value is not None}
    if arguments.operations:
        options["operations"] = "true"
    with session_of(arguments) as spark, telling(arguments) as tell:
        from morag.spark.progress import watched
        from morag.spark.tables import read_table

        with watched(spark, f"read {arguments.table}", tell):
            wanted = _names(arguments.columns)
            if arguments.where:  # It may ask for columns that are not to be shown.
                frame = read_table(spark, origin, arguments.table, options).where(arguments.where)
                frame = frame.select(*wanted) if wanted else frame
            else:
                frame = read_table(spark, origin, arguments.table, options, wanted)
            show(arguments, frame)
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    origin = origin_of(arguments)
    between = arguments.from_ref, arguments.to_ref
    on = _names(arguments.on)
    files = options_of_files(arguments)
    with session_of(arguments) as spark, telling(arguments) as tell:
        from morag.spark.diffs import changed_rows, diff
        from morag.spark.progress import watched

        with watched(spark, "diff", tell):
            if arguments.rows is None:
                show(arguments, diff(spark, origin, *between, files=files), differences)
            else:
                key = key_of_text(arguments.rows)
                show(arguments, changed_rows(spark, origin, *between, key, on=on, files=files))
    return 0


def _health(arguments: argparse.Namespace) -> int:
    origin = origin_of(arguments)
    files = options_of_files(arguments)
    with session_of(arguments) as spark, telling(arguments) as tell:
        from morag.spark.gc import Run
        from morag.spark.health import report, totals
        from morag.spark.progress import watched

        run = None if arguments.orphans is None else Run(spark, arguments.orphans)
        with watched(spark, "health", tell):
            found = report(
                spark, origin, arguments.ref, deep=arguments.deep, orphans=run, files=files
            ).persist()
            sums = totals(found).collect()
            unwell = any(row.status != "OK" for row in sums)
            if arguments.all or arguments.json or arguments.output is not None:
                show(arguments, found)
            else:
                sys.stdout.write(rule(sums))
                if unwell:
                    show(
                        arguments, found.where("status != 'OK'").select("key", "status", "problem")
                    )
    return UNWELL if unwell else 0


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]

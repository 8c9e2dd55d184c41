"""`morag spark read`, `diff` and `health`: jobs that change nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from morag.api.url_parsing import key_of_text
from morag.cli.spark_flags import (
    add_flags,
    add_lake_flags,
    add_output_flags,
    options_of_files,
    origin_of,
    progress_output,
    session_of,
    show,
)
from morag.cli.spark_text import diff_text, table_text
from morag.spark.source.options import TABLE_OPTIONS

if TYPE_CHECKING:
    import argparse

PROBLEMS_FOUND: Final = 3
"""The exit code of `health` if contents or files are missing or unreadable."""


def add_jobs(jobs: Any) -> None:
    _add_read(_job(jobs, "read", "Show a table of the catalog"))
    _add_diff(_job(jobs, "diff", "Compare the tables of two refs"))
    _add_health(_job(jobs, "health", "Report on the lake"))


def _job(jobs: Any, name: str, help: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = jobs.add_parser(
        name, help=help, description=f"{help}.", allow_abbrev=False
    )
    return parser


def _add_read(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(job=_read)
    parser.add_argument("table", choices=TABLE_OPTIONS, help="the table to show")
    parser.add_argument("--ref", help="for entries and log [the default branch]")
    parser.add_argument("--from", dest="from_ref", metavar="REF", help="for diff")
    parser.add_argument("--to", dest="to_ref", metavar="REF", help="for diff")
    parser.add_argument(
        "--operations", action="store_true", help="the log with a row per operation"
    )
    parser.add_argument("--columns", metavar="NAME,...", default="", help="the columns to show")
    parser.add_argument("--where", metavar="SQL", help="a condition on the rows to show")
    add_flags(parser)
    add_output_flags(parser)


def _add_diff(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(job=_diff)
    parser.add_argument("from_ref", metavar="FROM", help="like main, main~1 or main@HASH")
    parser.add_argument("to_ref", metavar="TO", help="the ref to compare with FROM")
    parser.add_argument(
        "--rows",
        metavar="KEY",
        help="show the rows of this table that differ; its key is written as `diff` shows it",
    )
    parser.add_argument(
        "--on",
        metavar="COLUMN,...",
        default="",
        help="the columns that identify a row [the table's identifier fields]",
    )
    add_lake_flags(parser)
    add_flags(parser)
    add_output_flags(parser)


def _add_health(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(job=_health)
    parser.add_argument("ref", metavar="REF", nargs="?", help="[the default branch]")
    parser.add_argument("--deep", action="store_true", help="check that every data file exists")
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
    with session_of(arguments) as spark, progress_output(arguments) as progress:
        from morag.spark.catalog_tables import read_table
        from morag.spark.progress import watched

        with watched(spark, f"read {arguments.table}", progress):
            columns = _names(arguments.columns)
            if arguments.where:  # The filter may need columns that are not shown.
                frame = read_table(spark, origin, arguments.table, options).where(arguments.where)
                frame = frame.select(*columns) if columns else frame
            else:
                frame = read_table(spark, origin, arguments.table, options, columns)
            show(arguments, frame)
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    origin = origin_of(arguments)
    between = arguments.from_ref, arguments.to_ref
    on = _names(arguments.on)
    files = options_of_files(arguments)
    with session_of(arguments) as spark, progress_output(arguments) as progress:
        from morag.spark.diffs import changed_rows, diff
        from morag.spark.progress import watched

        with watched(spark, "diff", progress):
            if arguments.rows is None:
                show(arguments, diff(spark, origin, *between, files=files), diff_text)
            else:
                key = key_of_text(arguments.rows)
                show(arguments, changed_rows(spark, origin, *between, key, on=on, files=files))
    return 0


def _health(arguments: argparse.Namespace) -> int:
    origin = origin_of(arguments)
    files = options_of_files(arguments)
    with session_of(arguments) as spark, progress_output(arguments) as progress:
        from morag.spark.gc import Run
        from morag.spark.health import report, totals
        from morag.spark.progress import watched

        run = None if arguments.orphans is None else Run(spark, arguments.orphans)
        with watched(spark, "health", progress):
            found = report(
                spark, origin, arguments.ref, deep=arguments.deep, orphans=run, files=files
            ).persist()
            sums = totals(found).collect()
            has_problems = any(row.status != "OK" for row in sums)
            if arguments.all or arguments.json or arguments.output is not None:
                show(arguments, found)
            else:
                sys.stdout.write(table_text(sums))
                if has_problems:
                    show(
                        arguments, found.where("status != 'OK'").select("key", "status", "problem")
                    )
    return PROBLEMS_FOUND if has_problems else 0


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]

"""`morag spark read`, `diff` and `health`: jobs that change nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from morag.api.url_parsing import key_of_text
from morag.cli.main import Misuse
from morag.cli.spark_checks import check_new_path, check_refs, check_versions, misuse
from morag.cli.spark_flags import (
    add_flags,
    add_lake_flags,
    add_output_flags,
    options_of_files,
    origin_of,
    pairs,
    progress_output,
    session_of,
    show,
)
from morag.cli.spark_text import diff_text, table_text
from morag.spark.gc.record_files import FilesOnDisk, is_on_disk
from morag.spark.gc.records import Records
from morag.spark.parting import DOTS, since_parting, split_dots
from morag.spark.source.options import TABLE_OPTIONS, ReadOptions

if TYPE_CHECKING:
    import argparse

    from morag.spark.opening import Origin

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
    parser.add_argument(
        "from_ref",
        metavar="FROM",
        help="like main, main~1 or main@HASH; or main...dev: what changed on dev since it parted "
        "from main",
    )
    parser.add_argument("to_ref", metavar="TO", nargs="?", help="the ref to compare with FROM")
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
    columns = _names(arguments.columns)
    with misuse():
        ReadOptions.of({"table": arguments.table, **options})
        if columns and not arguments.where:
            from morag.spark.catalog_tables import selected_schema

            selected_schema({"table": arguments.table, **options}, columns)
    check_new_path("--output", arguments.output)
    if arguments.table == "objects" and origin.store is None:
        raise Misuse("table objects reads the rows of a store: name it by --store")
    check_refs(origin, *given.values())
    with session_of(arguments) as spark, progress_output(arguments) as progress:
        from morag.spark.catalog_tables import read_table
        from morag.spark.progress import watched

        with watched(spark, f"read {arguments.table}", progress):
            if arguments.where:  # The filter may need columns that are not shown.
                frame = read_table(spark, origin, arguments.table, options).where(arguments.where)
                frame = frame.select(*columns) if columns else frame
            else:
                frame = read_table(spark, origin, arguments.table, options, columns)
            show(arguments, frame)
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    origin = origin_of(arguments)
    on = _names(arguments.on)
    files = options_of_files(arguments)
    key = None if arguments.rows is None else key_of_text(arguments.rows)
    check_new_path("--output", arguments.output)
    between = _compared(arguments, origin)
    if key is not None:
        check_versions(origin, between, key, on, files)
    with session_of(arguments) as spark, progress_output(arguments) as progress:
        from morag.spark.diffs import changed_rows, diff
        from morag.spark.progress import watched

        with watched(spark, "diff", progress):
            if key is None:
                show(arguments, diff(spark, origin, *between, files=files), diff_text)
            else:
                show(arguments, changed_rows(spark, origin, *between, key, on=on, files=files))
    return 0


def _health(arguments: argparse.Namespace) -> int:
    origin = origin_of(arguments)
    files = options_of_files(arguments)
    check_new_path("--output", arguments.output)
    conf, orphans = pairs("--conf", arguments.conf), arguments.orphans
    if orphans is not None and is_on_disk(orphans, conf):
        Records(FilesOnDisk(), orphans)
    check_refs(origin, arguments.ref)
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
                sys.stdout.write(table_text([row.asDict() for row in sums]))
                if has_problems:
                    show(
                        arguments, found.where("status != 'OK'").select("key", "status", "problem")
                    )
    return PROBLEMS_FOUND if has_problems else 0


def _compared(arguments: argparse.Namespace, origin: Origin) -> tuple[str, str]:
    """The two refs of `main dev` or of `main...dev`, which exist."""
    one, other = arguments.from_ref, arguments.to_ref
    if DOTS in one and other is None:
        with misuse():
            sides = split_dots(one)
        return since_parting(origin, *sides)
    if other is None:
        raise Misuse(f"name the second ref as well, as in `main dev` or `main{DOTS}dev`")
    check_refs(origin, one, other)
    return one, other


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]

"""`morag spark fsck`: checks a whole store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from morag.cli.spark_checks import check_store
from morag.cli.spark_flags import (
    add_flags,
    add_output_flags,
    add_store_flags,
    progress_output,
    session_of,
    show,
    store_origin_of,
)
from morag.cli.spark_reports import PROBLEMS_FOUND

if TYPE_CHECKING:
    import argparse


def add_jobs(jobs: Any) -> None:
    help = "Find damaged and missing objects of a store"
    parser = jobs.add_parser("fsck", help=help, description=f"{help}.", allow_abbrev=False)
    parser.set_defaults(job=_fsck)
    add_store_flags(parser)
    add_flags(parser, catalog=False)
    add_output_flags(parser)


def _fsck(arguments: argparse.Namespace) -> int:
    origin = store_origin_of(arguments)
    check_store(origin)
    with session_of(arguments) as spark, progress_output(arguments) as progress:
        from morag.spark.fsck import check

        checked = check(spark, origin, progress=progress)
        found = checked.findings.count()
        if found or arguments.output is not None:
            show(arguments, checked.findings)
        totals = checked.totals
        if not arguments.quiet:
            sys.stderr.write(
                f"checked {sum(totals.objects.values()):,} objects, {totals.commits:,} commits "
                f"({totals.reachable:,} of them on references), {totals.references:,} references: "
                f"{f'{found:,} problems' if found else 'no problems'}\n"
            )
    return PROBLEMS_FOUND if found else 0

"""`morag spark`: jobs on Spark for work on a whole catalog or a whole lake."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from morag.cli import spark_gc, spark_reports
from morag.errors import BadRequest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def configure(parser: argparse.ArgumentParser, explain: bool) -> None:
    parser.epilog = "docs/spark.md explains the jobs; each is a function of morag.spark as well."
    jobs = parser.add_subparsers(metavar="JOB", required=True)
    spark_reports.add_jobs(jobs)
    spark_gc.add_job(jobs)


def run(arguments: argparse.Namespace) -> int:
    if find_spec("pyspark") is None:
        raise BadRequest("Spark is not installed; run: pip install 'morag[spark]'")
    from morag.spark.commands import readable_errors

    job: Callable[[argparse.Namespace], int] = arguments.job
    try:
        with readable_errors():
            return job(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("morag: stopped\n")
        raise

"""`morag spark`: jobs on Spark for work on a whole catalog or a whole lake."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from morag.cli import (
    spark_fsck,
    spark_gc,
    spark_generate,
    spark_maintenance,
    spark_reports,
    spark_transfer,
)
from morag.errors import BadRequest
from morag.package_extras import install_advice

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_JOB_MODULES: Final = (
    spark_reports,
    spark_gc,
    spark_fsck,
    spark_generate,
    spark_maintenance,
    spark_transfer,
)
"""Each adds its jobs with `add_jobs`. None of them imports PySpark before a job runs."""


def configure(parser: argparse.ArgumentParser, explain: bool) -> None:
    parser.epilog = "docs/spark.md explains the jobs; each is a function of morag.spark as well."
    jobs = parser.add_subparsers(metavar="JOB", required=True)
    for module in _JOB_MODULES:
        module.add_jobs(jobs)


def run(arguments: argparse.Namespace) -> int:
    if find_spec("pyspark") is None:
        raise BadRequest(f"PySpark is not installed; run: {install_advice('spark')}")
    from morag.spark.commands import readable_errors

    job: Callable[[argparse.Namespace], int] = arguments.job
    try:
        with readable_errors():
            return job(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("morag: stopped\n")
        raise

"""`morag spark gc`: garbage collection of data files. A dry run is the default."""

from __future__ import annotations

import argparse
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from morag.cli.spark_checks import check_new_path, check_refs, misuse
from morag.cli.spark_flags import (
    add_flags,
    add_lake_flags,
    add_output_flags,
    catalog_text,
    options_of_files,
    origin_of,
    pairs,
    progress_output,
    session_of,
    show,
    show_rows,
)
from morag.cli.spark_gc_report import print_report
from morag.spark.gc.plan import check_request
from morag.spark.gc.record_files import FilesOnDisk, HadoopFiles, is_on_disk
from morag.spark.gc.recorded_rows import first_rows
from morag.spark.gc.records import Records, recorded_paths
from morag.spark.gc.steps import PURGED, REMOVED, UNDONE, WITH_ATTEMPTS
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from morag.spark.gc.quarantine import Action
    from morag.spark.gc.record_files import RecordFiles
    from morag.spark.opening import Origin
    from morag.spark.progress import ProgressCallback

_RESUMABLE: Final = (
    "The recorded steps are kept: `morag spark gc list --runs {runs}` shows the run, "
    "`morag spark gc resume` continues it\n"
)
_REPEATABLE: Final = "Completed work is kept: repeat the command to do the rest\n"


def add_jobs(jobs: Any) -> None:
    parser = jobs.add_parser(
        "gc",
        help="Remove data files that no reference needs",
        description="Remove data files that no reference needs. A dry run is the default.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_collect(_command(commands, "collect", _collect, "Find the files that no reference needs"))
    resume = _run_command(commands, "resume", _resume, "Continue a run that was stopped")
    _add_removal(resume)
    sweep = _run_command(commands, "sweep", _sweep, "Remove the files that a run has found")
    _add_removal(sweep)
    undo = _run_command(commands, "undo", _undo, "Move files back from quarantine", catalog=False)
    add_lake_flags(undo)
    purge = _run_command(commands, "purge", _purge, "Delete the files in quarantine for good")
    _add_dry_run(purge)
    add_lake_flags(purge)
    listed = _command(commands, "list", _list, "Show the recorded runs")
    _add_runs(listed)
    add_flags(listed, catalog=False)
    shown = _run_command(commands, "show", _show, "Show the results of a run", catalog=False)
    shown.add_argument(
        "--part",
        metavar="STEP",
        default="orphans",
        help="live, problems, or a step that `list` shows [orphans]",
    )
    add_output_flags(shown)
    _run_command(commands, "unlock", _unlock, "Remove the lock of a killed job", catalog=False)


def _add_collect(parser: argparse.ArgumentParser) -> None:
    _add_runs(parser)
    parser.add_argument(
        "--cutoff",
        metavar="POLICY",
        help="how far back commits are live: NONE, a number of commits, a duration such as P30D, "
        "or a time [the repository's configuration, or NONE]",
    )
    parser.add_argument(
        "--cutoff-for",
        metavar="PATTERN=POLICY",
        action="append",
        default=[],
        help="the same for references whose whole name matches; the first match counts",
    )
    parser.add_argument(
        "--grace", metavar="DURATION", help="keep younger files [the configuration, or P3D]"
    )
    parser.add_argument(
        "--snapshots",
        choices=("all", "current"),
        default="all",
        help="the snapshots of live metadata whose files are kept [all]",
    )
    parser.add_argument(
        "--dropped",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also list the directories of dropped tables [yes]",
    )
    parser.add_argument(
        "--location",
        metavar="URI",
        action="append",
        default=[],
        help="a further directory that holds nothing but files of this catalog",
    )
    parser.add_argument(
        "--ignore-missing",
        action="store_true",
        help="continue although metadata of live contents is missing; keep all files of these "
        "tables",
    )
    parser.add_argument(
        "--quarantine",
        metavar="DIR",
        help="directory that removed files are moved to, on disk for files on disk, or on S3 for "
        "files on S3 [their own directory; on S3, the top of their bucket]",
    )
    _add_removal(parser)
    add_flags(parser)


def _command(
    commands: Any, name: str, job: Callable[[argparse.Namespace], int], help: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help, description=f"{help}.", allow_abbrev=False
    )
    parser.set_defaults(job=job)
    return parser


def _run_command(
    commands: Any,
    name: str,
    job: Callable[[argparse.Namespace], int],
    help: str,
    *,
    catalog: bool = True,
) -> argparse.ArgumentParser:
    parser = _command(commands, name, job, help)
    parser.add_argument("run", metavar="RUN", help="the directory of a run")
    add_flags(parser, catalog)
    return parser


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs", metavar="DIR", required=True, help="directory of the recorded runs"
    )


def _add_removal(parser: argparse.ArgumentParser) -> None:
    _add_dry_run(parser)
    parser.add_argument(
        "--delete", action="store_true", help="delete at once, without a quarantine"
    )
    add_lake_flags(parser)


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="only report what would be removed; --no-dry-run removes it",
    )


def _collect(arguments: argparse.Namespace) -> int:
    origin, files = origin_of(arguments), options_of_files(arguments)
    flags = catalog_text(arguments)
    cutoffs = pairs("--cutoff-for", arguments.cutoff_for, "PATTERN=POLICY")
    with misuse():
        check_request(
            arguments.cutoff,
            cutoffs,
            arguments.grace,
            arguments.snapshots,
            arguments.location,
            arguments.quarantine,
            World(),
        )
    if is_on_disk(arguments.runs, pairs("--conf", arguments.conf)):
        FilesOnDisk().list_directory(arguments.runs)
    check_refs(origin)
    with _step_session(arguments, _RESUMABLE.format(runs=arguments.runs)) as (spark, progress):
        from morag.spark.gc import collect

        run = collect(
            spark,
            origin,
            arguments.runs,
            cutoff=arguments.cutoff,
            cutoffs=cutoffs,
            grace=arguments.grace,
            snapshots=arguments.snapshots,
            dropped=arguments.dropped,
            locations=arguments.location,
            ignore_missing=arguments.ignore_missing,
            quarantine=arguments.quarantine,
            dry_run=arguments.dry_run,
            action=_action(arguments),
            files=files,
            progress=progress,
        )
        return print_report(run, REMOVED, dry_run=arguments.dry_run, catalog=flags)


def _resume(arguments: argparse.Namespace) -> int:
    origin, files = _checked(arguments)
    flags = catalog_text(arguments)
    with _step_session(arguments, _REPEATABLE) as (spark, progress):
        from morag.spark.gc import resume

        run = resume(
            spark,
            arguments.run,
            origin,
            dry_run=arguments.dry_run,
            action=_action(arguments),
            files=files,
            progress=progress,
        )
        return print_report(run, REMOVED, dry_run=arguments.dry_run, catalog=flags)


def _sweep(arguments: argparse.Namespace) -> int:
    origin, files = _checked(arguments)
    flags = catalog_text(arguments)
    with _step_session(arguments, _REPEATABLE) as (spark, progress):
        from morag.spark.gc import sweep

        run = sweep(
            spark,
            arguments.run,
            origin,
            dry_run=arguments.dry_run,
            action=_action(arguments),
            files=files,
            progress=progress,
        )
        return print_report(run, REMOVED, dry_run=arguments.dry_run, catalog=flags)


def _undo(arguments: argparse.Namespace) -> int:
    files = options_of_files(arguments)
    _records_on_disk(arguments)
    with _step_session(arguments, _REPEATABLE) as (spark, progress):
        from morag.spark.gc import undo

        return print_report(undo(spark, arguments.run, files=files, progress=progress), UNDONE)


def _purge(arguments: argparse.Namespace) -> int:
    origin, files = _checked(arguments)
    flags = catalog_text(arguments)
    with _step_session(arguments, _REPEATABLE) as (spark, progress):
        from morag.spark.gc import purge

        run = purge(
            spark,
            arguments.run,
            origin,
            dry_run=arguments.dry_run,
            files=files,
            progress=progress,
        )
        return print_report(run, PURGED, dry_run=arguments.dry_run, catalog=flags)


def _list(arguments: argparse.Namespace) -> int:
    if is_on_disk(arguments.runs, pairs("--conf", arguments.conf)):
        _print_runs(FilesOnDisk(), arguments.runs)
        return 0
    with session_of(arguments) as spark:
        _print_runs(HadoopFiles(spark), arguments.runs)
    return 0


def _print_runs(files: RecordFiles, directory: str) -> None:
    found = recorded_paths(files, directory)
    for path in found:
        steps = ", ".join(step.name for step in Records(files, path).steps())
        sys.stdout.write(f"{path}  {steps}\n")
    if not found:
        sys.stderr.write(f"no runs in '{directory}'\n")


def _show(arguments: argparse.Namespace) -> int:
    check_new_path("--output", arguments.output)
    part, records = arguments.part, _records_on_disk(arguments)
    if records is not None and arguments.output is None:
        rows = first_rows(records, part, arguments.limit + 1)
        if rows is not None:
            show_rows(arguments, rows)
            return 0
    with session_of(arguments) as spark:
        from morag.spark.gc import Run

        run = Run(spark, arguments.run)
        attempted = {step.name: step for step in WITH_ATTEMPTS}
        if part == "live":
            show(arguments, run.live)
        elif part == "problems":
            show(arguments, run.problems)
        elif part in attempted:
            show(arguments, run.attempts(attempted[part]).outcomes)
        else:
            show(arguments, run.read(part))
    return 0


def _unlock(arguments: argparse.Namespace) -> int:
    records = _records_on_disk(arguments)
    if records is not None:
        records.unlock()
        return 0
    with session_of(arguments) as spark:
        from morag.spark.gc import unlock

        unlock(spark, arguments.run)
    return 0


def _checked(arguments: argparse.Namespace) -> tuple[Origin, Mapping[str, str]]:
    """The catalog and the options of files, after a check that the run and the catalog exist."""
    origin, files = origin_of(arguments), options_of_files(arguments)
    _records_on_disk(arguments)
    check_refs(origin)
    return origin, files


def _records_on_disk(arguments: argparse.Namespace) -> Records | None:
    """The records of the run, if they can be read without Spark. CannotRun if there are none."""
    if not is_on_disk(arguments.run, pairs("--conf", arguments.conf)):
        return None
    return Records(FilesOnDisk(), arguments.run)


@contextmanager
def _step_session(
    arguments: argparse.Namespace, advice: str
) -> Iterator[tuple[SparkSession, ProgressCallback | None]]:
    """The session and the progress output of a step. After Ctrl-C, print how to continue."""
    with session_of(arguments) as spark, progress_output(arguments) as progress:
        try:
            yield spark, progress
        except KeyboardInterrupt:
            sys.stderr.write(advice)
            raise


def _action(arguments: argparse.Namespace) -> Action:
    return "delete" if arguments.delete else "quarantine"

"""`morag spark gc`: garbage collection of data files. A dry run is the default."""

from __future__ import annotations

import argparse
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from morag.cli.main import FAILED
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
from morag.cli.spark_text import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from morag.spark.gc import Run
    from morag.spark.gc.quarantine import Action
    from morag.spark.gc.steps import Step
    from morag.spark.progress import ProgressCallback

_RESUMABLE: Final = (
    "The recorded steps are kept: `morag spark gc list --runs {runs}` shows the run, "
    "`morag spark gc resume` continues it\n"
)
_REPEATABLE: Final = "Completed work is kept: repeat the command to do the rest\n"
_SWEEP: Final = (
    "`morag spark gc show RUN` shows the files, "
    "`morag spark gc sweep RUN --no-dry-run` moves them into quarantine"
)
_PURGE: Final = "with --no-dry-run, the files in quarantine are deleted for good"


def add_job(jobs: Any) -> None:
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
    cutoffs = pairs("--cutoff-for", arguments.cutoff_for)
    with _step_session(arguments, _RESUMABLE.format(runs=arguments.runs)) as (spark, progress):
        from morag.spark.gc import collect
        from morag.spark.gc.steps import REMOVED

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
        return _report(run, REMOVED, _SWEEP if arguments.dry_run else "")


def _resume(arguments: argparse.Namespace) -> int:
    origin, files = origin_of(arguments), options_of_files(arguments)
    with _step_session(arguments, _REPEATABLE) as (spark, progress):
        from morag.spark.gc import resume
        from morag.spark.gc.steps import REMOVED

        run = resume(
            spark,
            arguments.run,
            origin,
            dry_run=arguments.dry_run,
            action=_action(arguments),
            files=files,
            progress=progress,
        )
        return _report(run, REMOVED, _SWEEP if arguments.dry_run else "")


def _sweep(arguments: argparse.Namespace) -> int:
    origin, files = origin_of(arguments), options_of_files(arguments)
    with _step_session(arguments, _REPEATABLE) as (spark, progress):
        from morag.spark.gc import Run, sweep
        from morag.spark.gc.preconditions import check_sweep
        from morag.spark.gc.steps import REMOVED

        if arguments.dry_run:
            run = Run(spark, arguments.run)
            check_sweep(run, origin)
            return _report(run, REMOVED, _SWEEP)
        run = sweep(
            spark, arguments.run, origin, action=_action(arguments), files=files, progress=progress
        )
        return _report(run, REMOVED)


def _undo(arguments: argparse.Namespace) -> int:
    files = options_of_files(arguments)
    with _step_session(arguments, _REPEATABLE) as (spark, progress):
        from morag.spark.gc import undo
        from morag.spark.gc.steps import UNDONE

        return _report(undo(spark, arguments.run, files=files, progress=progress), UNDONE)


def _purge(arguments: argparse.Namespace) -> int:
    origin, files = origin_of(arguments), options_of_files(arguments)
    with _step_session(arguments, _REPEATABLE) as (spark, progress):
        from morag.spark.gc import Run, purge
        from morag.spark.gc.preconditions import check_purge
        from morag.spark.gc.steps import PURGED

        if arguments.dry_run:
            run = Run(spark, arguments.run)
            check_purge(run, origin)
            return _report(run, PURGED, _PURGE)
        return _report(purge(spark, arguments.run, origin, files=files, progress=progress), PURGED)


def _list(arguments: argparse.Namespace) -> int:
    with session_of(arguments) as spark:
        from morag.spark.gc import runs

        found = runs(spark, arguments.runs)
        for run in found:
            steps = ", ".join(step.name for step in run.steps())
            sys.stdout.write(f"{run.path}  {steps}\n")
        if not found:
            sys.stderr.write(f"no runs in '{arguments.runs}'\n")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    with session_of(arguments) as spark:
        from morag.spark.gc import Run
        from morag.spark.gc.steps import WITH_ATTEMPTS

        run = Run(spark, arguments.run)
        part = arguments.part
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
    with session_of(arguments) as spark:
        from morag.spark.gc import unlock

        unlock(spark, arguments.run)
    return 0


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


def _report(run: Run, command: Step, dry_run_advice: str = "") -> int:
    """Print the state of the run; return the exit code.

    The exit code depends on the step of this command and on the rescue that it includes, not on
    failures of earlier commands: some of these are permanent.
    """
    from morag.spark.commands import count_files
    from morag.spark.gc.run import UNSUCCESSFUL
    from morag.spark.gc.steps import ORPHANS, RESCUED, UNDONE, WITH_ATTEMPTS

    lines, code = [f"run {run.path}"], 0
    judged = () if dry_run_advice else (command,) if command == UNDONE else (command, RESCUED)
    if run.has(ORPHANS):
        (found,) = count_files(run.orphans)
        lines.append(f"  orphans: {found.files} files, {size(found.bytes)}")
        lines += _problems(run)
    for step in WITH_ATTEMPTS:
        if run.has(step):
            for row in count_files(run.attempts(step).outcomes, "outcome"):
                counts = f"{row.files} files, {size(row.bytes)}"
                lines.append(f"  {step.name}: {row.outcome.lower()} {counts}")
                code = FAILED if row.outcome in UNSUCCESSFUL and step in judged else code
    if dry_run_advice:
        lines.append(f"  this was a dry run: {dry_run_advice}")
    sys.stdout.write("\n".join(lines) + "\n")
    return code


def _problems(run: Run) -> list[str]:
    from morag.spark.gc.steps import Role

    problems = {
        Role.MISSING: "is missing",
        Role.UNREADABLE: "cannot be read",
        Role.ELSEWHERE: "is on stores that are not read: jobs handle disks and S3 only",
    }
    found = run.problems.select("role", "content_id").distinct().groupBy("role").count()
    lines = [
        f"  problems: metadata of {row['count']} contents {problems[row.role]}"
        for row in found.orderBy("role").collect()
    ]
    return [*lines, "  `morag spark gc show RUN --part problems` shows them"] if lines else []

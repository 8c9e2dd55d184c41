"""`morag spark gc`: garbage collection of data files. Nothing is removed unless one says so."""

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
    session_of,
    show,
    telling,
)
from morag.cli.spark_shown import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from morag.spark.gc import Run
    from morag.spark.gc.quarantine import Action

_RESUMABLE: Final = (
    "What is recorded stays: `morag spark gc list --runs {runs}` shows the run, "
    "`morag spark gc resume` goes on with it\n"
)
_REPEATABLE: Final = "What is done stays done: the same command goes on with the rest\n"
_SWEEP: Final = (
    "`morag spark gc show RUN` shows the files, "
    "`morag spark gc sweep RUN --no-dry-run` moves them into quarantine"
)
_PURGE: Final = "with --no-dry-run, what is in quarantine is deleted for good"
_TRIED: Final = ("removed", "rescued", "undone", "purged")


def add_job(jobs: Any) -> None:
    parser = jobs.add_parser("gc", help="Remove data files that nothing needs", allow_abbrev=False)
    steps = parser.add_subparsers(metavar="STEP", required=True)
    _add_collect(_step(steps, "collect", _collect, "Find the files that nothing leads to"))
    resume = _run_step(steps, "resume", _resume, "Go on with a run that was stopped")
    _add_removal(resume)
    sweep = _run_step(steps, "sweep", _sweep, "Remove the files that a run has found")
    _add_removal(sweep)
    undo = _run_step(steps, "undo", _undo, "Put back what is in quarantine", catalog=False)
    add_lake_flags(undo)
    purge = _run_step(steps, "purge", _purge, "Delete what is in quarantine for good")
    _add_dry_run(purge)
    add_lake_flags(purge)
    listed = _step(steps, "list", _list, "Show the recorded runs")
    _add_runs(listed)
    add_flags(listed, catalog=False)
    shown = _run_step(steps, "show", _show, "Show what a run has found", catalog=False)
    shown.add_argument(
        "--part",
        metavar="STEP",
        default="orphans",
        help="live, problems, or a step that `list` names [orphans]",
    )
    add_output_flags(shown)
    _run_step(steps, "unlock", _unlock, "Let jobs in again after one was killed", catalog=False)


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
        help="the same for references whose whole name matches; the first that fits counts",
    )
    parser.add_argument(
        "--grace", metavar="DURATION", help="younger files stay [the configuration, or P3D]"
    )
    parser.add_argument(
        "--snapshots",
        choices=("all", "current"),
        default="all",
        help="which snapshots of live metadata keep their files [all]",
    )
    parser.add_argument(
        "--dropped",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="look also where dropped tables were [yes]",
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
        help="go on although metadata of live contents is missing",
    )
    parser.add_argument(
        "--quarantine",
        metavar="DIR",
        help="where removed files wait, a directory for those on disk, or one on S3 for those on "
        "S3 [beside where they were; on S3, at the top of the bucket]",
    )
    _add_removal(parser)
    add_flags(parser)


def _step(
    steps: Any, name: str, job: Callable[[argparse.Namespace], int], help: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = steps.add_parser(
        name, help=help, description=f"{help}.", allow_abbrev=False
    )
    parser.set_defaults(job=job)
    return parser


def _run_step(
    steps: Any,
    name: str,
    job: Callable[[argparse.Namespace], int],
    help: str,
    *,
    catalog: bool = True,
) -> argparse.ArgumentParser:
    parser = _step(steps, name, job, help)
    parser.add_argument("run", metavar="RUN", help="the directory of a run")
    add_flags(parser, catalog)
    return parser


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs", metavar="DIR", required=True, help="where runs are recorded, a directory each"
    )


def _add_removal(parser: argparse.ArgumentParser) -> None:
    _add_dry_run(parser)
    parser.add_argument(
        "--delete", action="store_true", help="at once, instead of a quarantine that can be undone"
    )
    add_lake_flags(parser)


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="only tell what would be removed; --no-dry-run removes it",
    )


def _collect(arguments: argparse.Namespace) -> int:
    origin, files = origin_of(arguments), options_of_files(arguments)
    cutoffs = pairs("--cutoff-for", arguments.cutoff_for)
    with (
        session_of(arguments) as spark,
        telling(arguments) as tell,
        _if_stopped(_RESUMABLE.format(runs=arguments.runs)),
    ):
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
            progress=tell,
        )
        return _tell(run, "removed", _SWEEP if arguments.dry_run else "")


def _resume(arguments: argparse.Namespace) -> int:
    origin, files = origin_of(arguments), options_of_files(arguments)
    with session_of(arguments) as spark, telling(arguments) as tell, _if_stopped(_REPEATABLE):
        from morag.spark.gc import resume

        run = resume(
            spark,
            arguments.run,
            origin,
            dry_run=arguments.dry_run,
            action=_action(arguments),
            files=files,
            progress=tell,
        )
        return _tell(run, "removed", _SWEEP if arguments.dry_run else "")


def _sweep(arguments: argparse.Namespace) -> int:
    origin, files = origin_of(arguments), options_of_files(arguments)
    with session_of(arguments) as spark, telling(arguments) as tell, _if_stopped(_REPEATABLE):
        from morag.spark.gc import Run, sweep
        from morag.spark.gc.sweep import check_sweep

        if arguments.dry_run:
            run = Run(spark, arguments.run)
            check_sweep(run, origin)
            return _tell(run, "removed", _SWEEP)
        run = sweep(
            spark, arguments.run, origin, action=_action(arguments), files=files, progress=tell
        )
        return _tell(run, "removed")


def _undo(arguments: argparse.Namespace) -> int:
    files = options_of_files(arguments)
    with session_of(arguments) as spark, telling(arguments) as tell, _if_stopped(_REPEATABLE):
        from morag.spark.gc import undo

        return _tell(undo(spark, arguments.run, files=files, progress=tell), "undone")


def _purge(arguments: argparse.Namespace) -> int:
    origin, files = origin_of(arguments), options_of_files(arguments)
    with session_of(arguments) as spark, telling(arguments) as tell, _if_stopped(_REPEATABLE):
        from morag.spark.gc import Run, purge
        from morag.spark.gc.sweep import check_purge

        if arguments.dry_run:
            run = Run(spark, arguments.run)
            check_purge(run, origin)
            return _tell(run, "purged", _PURGE)
        return _tell(purge(spark, arguments.run, origin, files=files, progress=tell), "purged")


def _list(arguments: argparse.Namespace) -> int:
    with session_of(arguments) as spark:
        from morag.spark.gc import runs

        found = runs(spark, arguments.runs)
        for run in found:
            steps = ", ".join(step.name for step in run.steps())
            sys.stdout.write(f"{run.path}  {steps}\n")
        if not found:
            sys.stderr.write(f"there are no runs in '{arguments.runs}'\n")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    with session_of(arguments) as spark:
        from morag.spark.gc import Run

        run = Run(spark, arguments.run)
        part = arguments.part
        if part == "live":
            show(arguments, run.live)
        elif part == "problems":
            show(arguments, run.problems)
        else:
            show(arguments, run.tries(part).outcomes if part in _TRIED else run.read(part))
    return 0


def _unlock(arguments: argparse.Namespace) -> int:
    with session_of(arguments) as spark:
        from morag.spark.gc import unlock

        unlock(spark, arguments.run)
    return 0


@contextmanager
def _if_stopped(told: str) -> Iterator[None]:
    """Say after Ctrl-C how it can go on."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(told)
        raise


def _action(arguments: argparse.Namespace) -> Action:
    return "delete" if arguments.delete else "quarantine"


def _tell(run: Run, made: str, dry: str = "") -> int:
    """What came of it, and what a dry run did not do; the exit code.

    That is by the step that the command has made and by what it had to put back, not by what others
    before it could not do: some of that stays so.
    """
    from morag.spark.gc.tries import BAD
    from morag.spark.running import summed

    lines, code = [f"run {run.path}"], 0
    judged = () if dry else (made,) if made == "undone" else (made, "rescued")
    if run.has("orphans"):
        (found,) = summed(run.orphans)
        lines.append(f"  orphans: {found.files} files, {size(found.bytes)}")
        lines += _problems(run)
    for step in _TRIED:
        if run.has(step):
            for row in summed(run.tries(step).outcomes, "outcome"):
                told = f"{row.files} files, {size(row.bytes)}"
                lines.append(f"  {step}: {row.outcome.lower()} {told}")
                code = FAILED if row.outcome in BAD and step in judged else code
    if dry:
        lines.append(f"  this was a dry run: {dry}")
    sys.stdout.write("\n".join(lines) + "\n")
    return code


def _problems(run: Run) -> list[str]:
    told = {
        "MISSING": "is missing",
        "UNREADABLE": "cannot be read",
        "ELSEWHERE": "is on stores that are not looked at: jobs handle disks and S3 only",
    }
    found = run.problems.select("role", "content_id").distinct().groupBy("role").count()
    lines = [
        f"  problems: metadata of {row['count']} contents {told[row.role]}"
        for row in found.orderBy("role").collect()
    ]
    return [*lines, "  `morag spark gc show RUN --part problems` shows them"] if lines else []

"""The report on a run of the garbage collector: what it found, why files stay, and what is next."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from morag.cli.main import FAILED
from morag.cli.spark_text import size
from morag.model.durations import duration_text
from morag.model.times import SECOND_NANOS, instant_text
from morag.spark.errors import CannotRun
from morag.spark.gc.steps import (
    KEPT_FILES,
    ORPHANS,
    PURGED,
    REMOVED,
    RESCUED,
    UNDONE,
    WITH_ATTEMPTS,
    Reason,
    Role,
)

if TYPE_CHECKING:
    from morag.spark.gc import Run
    from morag.spark.gc.plan import Plan
    from morag.spark.gc.steps import Step

_DAY_NANOS: Final = 86_400 * SECOND_NANOS
_PROBLEMS: Final = {
    Role.MISSING: "is missing",
    Role.UNREADABLE: "cannot be read",
    Role.ELSEWHERE: "is on stores that are not read: jobs handle disks and S3 only",
}
_REASONS: Final = {
    Reason.LIVE: "needed by references",
    Reason.PROTECTED: "protected: in directories of contents that are not Iceberg's",
    Reason.NOT_UNDERSTOOD: "not understood: metadata of their tables could not be read",
    Reason.YOUNG: "younger than the grace period of {grace}; the newest is old enough at {time}",
    Reason.UNDATED: "of unknown age",
}


def print_report(run: Run, command: Step, *, dry_run: bool = False, catalog: str = "") -> int:
    """Print the state of the run; return the exit code.

    `catalog` are the flags of the command that name its catalog, for the advice after a dry run.

    The exit code depends on the step of this command and on the rescue that it includes, not on
    failures of earlier commands: some of these are permanent.
    """
    lines, failed = [f"run {run.path}"], False
    judged = () if dry_run else (command,) if command == UNDONE else (command, RESCUED)
    if run.has(ORPHANS):
        lines += [*_found(run), *_problems(run)]
    for step in WITH_ATTEMPTS:
        if run.has(step):
            counts, has_failures = _outcomes(run, step)
            lines += counts
            failed = failed or (step in judged and has_failures)
    if dry_run:
        advice = _purge_advice(run) if command == PURGED else _sweep_advice(run, catalog)
        lines.append(f"  this was a dry run: {advice}")
    sys.stdout.write("\n".join(lines) + "\n")
    return FAILED if failed else 0


def _found(run: Run) -> list[str]:
    """The orphans, and for all other files why they stay."""
    from morag.spark.commands import count_files

    (orphans,) = count_files(run.orphans)
    lines = [f"  orphans: {_amount(orphans.files, orphans.bytes)}"]
    if not run.has(KEPT_FILES):  # An earlier version made the run.
        return lines
    kept = {row.reason: row for row in run.read(KEPT_FILES).collect()}
    for reason, text in _REASONS.items():
        if reason in kept:
            row = kept[reason]
            lines.append(
                f"  kept: {_amount(row.files, row.size_bytes)}: {_told(text, run.plan, row)}"
            )
    if not kept and not orphans.files:
        lines.append("  no files are in the directories of the catalog's tables")
    return lines


def _told(text: str, plan: Plan, row: Any) -> str:
    if row.newest_micros is None:
        return text
    old_nanos = row.newest_micros * 1000 + plan.grace_nanos
    whole = (old_nanos // SECOND_NANOS + 1) * SECOND_NANOS
    return text.format(grace=_grace(plan.grace_nanos), time=instant_text(whole))


def _grace(nanos: int) -> str:
    days, rest = divmod(nanos, _DAY_NANOS)
    return f"P{days}D" if days and not rest else duration_text(nanos)


def _problems(run: Run) -> list[str]:
    found = run.problems.select("role", "content_id").distinct().groupBy("role").count()
    lines = [
        f"  problems: metadata of {row['count']} contents {_PROBLEMS[row.role]}"
        for row in found.orderBy("role").collect()
    ]
    return (
        [*lines, f"  `morag spark gc show {run.path} --part problems` shows them"] if lines else []
    )


def _outcomes(run: Run, step: Step) -> tuple[list[str], bool]:
    from morag.spark.commands import count_files
    from morag.spark.gc.run import UNSUCCESSFUL

    rows = count_files(run.attempts(step).outcomes, "outcome")
    lines = [
        f"  {step.name}: {row.outcome.lower()} {_amount(row.files, row.bytes)}" for row in rows
    ]
    return lines, any(row.outcome in UNSUCCESSFUL for row in rows)


def _sweep_advice(run: Run, catalog: str) -> str:
    """Advice after a dry run. A sweep that would be refused is not recommended."""
    from morag.spark.gc.preconditions import check_removable

    try:
        check_removable(run)
    except CannotRun as refusal:
        return f"the run cannot be swept. {refusal}"
    if run.orphans.isEmpty():
        young = (
            run.has(KEPT_FILES)
            and not run.read(KEPT_FILES).where(f"reason = '{Reason.YOUNG.value}'").isEmpty()
        )
        later = "; collect again when the young files are old enough, or with a shorter --grace"
        return f"there is nothing to sweep{later if young else ''}"
    if run.has(REMOVED) and not run.quarantined.isEmpty():
        return (
            f"files are in quarantine already: `morag spark gc undo {run.path}` moves them back, "
            f"`morag spark gc purge {run.path} {catalog} --no-dry-run` deletes them for good"
        )
    return (
        f"`morag spark gc show {run.path}` shows the files, "
        f"`morag spark gc sweep {run.path} {catalog} --no-dry-run` moves them into quarantine"
    )


def _purge_advice(run: Run) -> str:
    from morag.spark.commands import count_files

    (waiting,) = count_files(run.quarantined)
    if not waiting.files:
        return "there is nothing in quarantine to purge"
    amount = _amount(waiting.files, waiting.bytes)
    return f"with --no-dry-run, {amount} in quarantine are deleted for good"


def _amount(files: int, size_bytes: int) -> str:
    return f"{files} files, {size(size_bytes)}"

"""Garbage collection of a lake: find the files that no live reference needs, and remove them.

    run = collect(spark, Origin(uri="http://127.0.0.1:19120"), "./gc-runs")  # Removes nothing.
    run.orphans.show()
    sweep(spark, run.path, origin)    # Moves them into a quarantine.
    undo(spark, run.path)             # Moves them back. Or, some days later:
    purge(spark, run.path, origin)    # Deletes them.

*mark* finds the contents that are live by the cut-off policies, *expand* the files that they need,
*list* the files that exist; the difference that is older than the grace period are the orphans,
which *sweep* removes. Every step is recorded, so that a run can be inspected, resumed and audited.
The catalog itself is never changed.
"""

from __future__ import annotations

from morag.spark.gc.collect import collect, resume
from morag.spark.gc.lock import unlock
from morag.spark.gc.run import Run, StepRecord, runs
from morag.spark.gc.steps import Step
from morag.spark.gc.sweep import purge, sweep, undo

__all__ = [
    "Run",
    "Step",
    "StepRecord",
    "collect",
    "purge",
    "resume",
    "runs",
    "sweep",
    "undo",
    "unlock",
]

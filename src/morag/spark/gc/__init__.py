"""Garbage collection of a lake: files that no live reference leads to any more go.

    run = collect(spark, Origin(uri="http://127.0.0.1:19120"), "./gc-runs")  # Removes nothing.
    run.orphans.show()
    sweep(spark, run.path, origin)    # Moves them into a quarantine.
    undo(spark, run.path)             # Moves them back. Or, some days later:
    purge(spark, run.path, origin)    # Deletes them.

*mark* finds the contents that are live, by the cut-off policies; *expand* the files that these
need; *list* what is there; *sweep* removes the difference, if it is older than the grace period.
Every step is recorded, so that a run can be looked at, resumed and audited. The catalog itself is
never changed.
"""

from __future__ import annotations

from morag.spark.gc.busy import unlock
from morag.spark.gc.collect import collect, resume
from morag.spark.gc.records import Run, Step, runs
from morag.spark.gc.sweep import purge, sweep, undo

__all__ = ["Run", "Step", "collect", "purge", "resume", "runs", "sweep", "undo", "unlock"]

"""Garbage collection of a lake: find the files that no live reference needs, and remove them.

    run = collect(spark, Origin(uri="http://127.0.0.1:19120"), "./gc-runs")  # Removes nothing.
    run.orphans.show()
    sweep(spark, run.path, origin, dry_run=False)    # Moves them into a quarantine.
    undo(spark, run.path)                            # Moves them back. Or, some days later:
    purge(spark, run.path, origin, dry_run=False)    # Deletes them.

*mark* finds the contents that are live by the cut-off policies, *expand* the files that they need,
*list* the files that exist; the difference that is older than the grace period are the orphans,
which *sweep* removes. Every step is recorded, so that a run can be inspected, resumed and audited.
The catalog itself is never changed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from morag.spark.gc.collection import collect, resume
    from morag.spark.gc.lock import unlock
    from morag.spark.gc.records import StepRecord
    from morag.spark.gc.removal import purge, sweep, undo
    from morag.spark.gc.run import Run, runs
    from morag.spark.gc.steps import Step

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

_MODULES: Final = {
    "Run": "run",
    "Step": "steps",
    "StepRecord": "records",
    "collect": "collection",
    "purge": "removal",
    "resume": "collection",
    "runs": "run",
    "sweep": "removal",
    "undo": "removal",
    "unlock": "lock",
}


def __getattr__(name: str) -> Any:
    """Import a function when it is first used.

    Commands check their arguments by modules of this package that need neither Spark nor PyIceberg,
    whose import takes longer than everything else before Java starts.
    """
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

"""Whether everything is known that a run goes by: what is not could be taken for garbage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

from morag.spark.errors import CannotRun
from morag.spark.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from morag.spark.gc.records import Run


def check_ready(run: Run) -> None:
    """Refuse to remove anything on the word of a run that does not know everything."""
    if not run.has("orphans"):
        raise CannotRun(f"The run '{run.path}' has not found its orphans yet; resume it first")
    check_known(run, run.problems, "Nothing is removed")


def check_known(run: Run, found: DataFrame, so: str) -> None:
    """Refuse to go on where metadata could not be read. `so` is what that means to the user."""
    if run.plan.locations:
        _refuse_elsewhere(run, found, so)
    roles = ["UNREADABLE"] if run.plan.ignore_missing else ["MISSING", "UNREADABLE"]
    bad = found.where(F.col("role").isin(*roles))
    first = bad.select("path", "detail").limit(3).collect()
    if first:
        shown = "; ".join(f"{row.path} ({row.detail})" for row in first)
        raise CannotRun(
            f"{so}, because {bad.count()} metadata files of live contents are missing or cannot be "
            f"read, such as {shown}. All are recorded in '{run.path}'. See that all executors "
            "reach the lake, and undo earlier runs, which may have them in quarantine. What is "
            "lost for good is passed over with ignore_missing, which leaves all files of these "
            "tables alone"
        )


def check_quarantine(run: Run) -> None:
    """Refuse one that is for files of another kind than there are: these would wait elsewhere."""
    asked = run.plan.quarantine
    if asked is None:
        return
    locations = run.read("locations")
    some, scheme = locations.first(), Place.of(asked).scheme
    if some is not None and locations.where(f"location LIKE '{scheme}://%'").isEmpty():
        raise CannotRun(
            f"Nothing can wait in the quarantine '{asked}': files on disk stay on disk and those "
            f"on S3 on S3, and all are of the other kind, such as those in '{some.location}'"
        )


def _refuse_elsewhere(run: Run, found: DataFrame, so: str) -> None:
    """Whoever asks for a further location vouches for all files in it. Yet data of a table may be
    there whose metadata leads to it from a store that jobs do not know."""
    first = found.where("role = 'ELSEWHERE'").select("path").limit(3).collect()
    if first:
        shown = ", ".join(f"'{row.path}'" for row in first)
        raise CannotRun(
            f"{so}, because further locations were asked for, and may have files of live contents "
            f"whose metadata is on a store other than disks and S3, such as {shown}. All are "
            f"recorded in '{run.path}'. Start a new run without further locations"
        )

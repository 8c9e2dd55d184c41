"""Checks before files are removed: the right catalog, complete knowledge, a run that is not undone.

Each check raises CannotRun and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - PySpark's documentation calls it F.

from morag.errors import ReferenceNotFound
from morag.model.names import NO_ANCESTOR_HASH
from morag.model.refspecs import RefSpec
from morag.spark.errors import CannotRun
from morag.spark.gc.mark import recorded_roots
from morag.spark.gc.steps import FIRST_MARK, LOCATIONS, ORPHANS, REMOVED, UNDONE, Role
from morag.spark.locations import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from morag.catalog import Catalog
    from morag.spark.gc.mark import Root
    from morag.spark.gc.run import Run
    from morag.spark.opening import Origin


def check_sweep(run: Run, origin: Origin) -> None:
    """Everything that `sweep` requires."""
    check_same_catalog(run, origin)
    check_removable(run)


def check_removable(run: Run) -> None:
    """Everything that `sweep` requires of the run itself."""
    if not run.has(ORPHANS):
        raise CannotRun(f"The run '{run.path}' has not found its orphans yet; resume it first")
    check_complete(run, run.problems, "Nothing is removed")
    _check_not_undone(run)


def check_purge(run: Run, origin: Origin) -> None:
    """Everything that `purge` requires."""
    check_same_catalog(run, origin)
    if not run.has(REMOVED):
        raise CannotRun(f"The run '{run.path}' has moved nothing yet; sweep it first")
    _check_not_undone(run)


def check_same_catalog(run: Run, origin: Origin) -> None:
    """The catalog must be the one that the run was started on: by the references of another one,
    live files would be removed.

    Addresses may change and hashes do not, so the catalog must have a commit that the run started
    from.
    """
    if run.has(FIRST_MARK.refs):
        with origin.open() as catalog:
            known = _identifying_roots(recorded_roots(run), catalog.default_branch)
            if not known or any(_has_commit(catalog, root.hash) for root in known):
                return
        shown = f"which does not know the commit {known[0].hash} of '{known[0].root}'"
    elif str(origin) == run.plan.origin:
        return
    else:
        shown = "and the run has not recorded anything that shows whether these are the same"
    raise CannotRun(
        f"The run '{run.path}' was started on the catalog '{run.plan.origin}', but this is "
        f"'{origin}', {shown}. Name the run's own catalog and repository, or start a new run"
    )


def check_complete(run: Run, found: DataFrame, consequence: str) -> None:
    """All metadata of live contents must have been read: files that only unread metadata names
    would be taken for garbage. `consequence` starts the message."""
    if run.plan.locations:
        _check_nothing_elsewhere(run, found, consequence)
    roles = [Role.UNREADABLE] if run.plan.ignore_missing else [Role.MISSING, Role.UNREADABLE]
    bad = found.where(F.col("role").isin(*roles))
    first = bad.select("path", "detail").limit(3).collect()
    if first:
        shown = "; ".join(f"{row.path} ({row.detail})" for row in first)
        raise CannotRun(
            f"{consequence}, because {bad.count()} metadata files of live contents are missing or "
            f"cannot be read, such as {shown}. All are recorded in '{run.path}'. Check that all "
            "executors reach the lake, and undo earlier runs, which may have these files in "
            "quarantine. If they are lost for good, ignore_missing skips them and keeps all files "
            "of their tables"
        )


def check_quarantine(run: Run) -> None:
    """A requested quarantine must be able to hold at least some of the files: those on disk cannot
    be moved to S3, nor the reverse."""
    requested = run.plan.quarantine
    if requested is None:
        return
    locations = run.read(LOCATIONS)
    some, scheme = locations.first(), Location.of(requested).scheme
    if some is not None and locations.where(f"location LIKE '{scheme}://%'").isEmpty():
        raise CannotRun(
            f"No file can be moved to the quarantine '{requested}': files on disk stay on disk and "
            f"those on S3 on S3, and all are of the other kind, such as those in '{some.location}'"
        )


def _identifying_roots(roots: list[Root], default_branch: str) -> list[Root]:
    """The default branch, if it has commits, because an outdated copy of the catalog has the
    commits of old tags, but not that one. Otherwise all references with commits."""
    with_commits = [root for root in roots if root.hash != NO_ANCESTOR_HASH]
    return [root for root in with_commits if root.root == default_branch] or with_commits


def _has_commit(catalog: Catalog, hash: str) -> bool:
    try:
        catalog.resolve(RefSpec(None, hash))
    except ReferenceNotFound:
        return False
    return True


def _check_not_undone(run: Run) -> None:
    if run.was_begun(UNDONE):
        raise CannotRun(f"The run '{run.path}' was undone; start a new one to remove files again")


def _check_nothing_elsewhere(run: Run, found: DataFrame, consequence: str) -> None:
    """A requested location must hold files of this catalog only. They may be data of a table whose
    metadata is on a store that jobs cannot read."""
    elsewhere = found.where(F.col("role") == Role.ELSEWHERE)
    first = elsewhere.select("path").limit(3).collect()
    if first:
        shown = ", ".join(f"'{row.path}'" for row in first)
        raise CannotRun(
            f"{consequence}, because further locations were requested, which may hold files of "
            f"live contents whose metadata is on a store other than disks and S3, such as {shown}. "
            f"All are recorded in '{run.path}'. Start a new run without further locations"
        )

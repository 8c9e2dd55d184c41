"""Whether a catalog is the one that a run was started on: another would have everything removed
that only the right one knows to be live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.client.places import NO_ANCESTOR
from morag.errors import ReferenceNotFound
from morag.model.refspecs import RefSpec
from morag.spark.errors import CannotRun

if TYPE_CHECKING:
    from morag.client import Client
    from morag.spark.gc.records import Run
    from morag.spark.gc.roots import Root
    from morag.spark.opening import Origin
    from morag.versions.repository import Repository


def check_own(run: Run, origin: Origin) -> None:
    """Addresses may change, and hashes do not: a commit that the run started from must be known."""
    if run.has("refs"):
        with origin.open() as catalog:
            tellers = _tellers(run.roots(), catalog.default_branch)
            if not tellers or any(_knows(catalog, root.hash) for root in tellers):
                return
        shown = f"which does not know the commit {tellers[0].hash} of '{tellers[0].root}'"
    elif str(origin) == run.plan.origin:
        return
    else:
        shown = "and nothing that was recorded tells whether these are the same"
    raise CannotRun(
        f"The run '{run.path}' was started on the catalog '{run.plan.origin}', but this is "
        f"'{origin}', {shown}. Name the run's own catalog and repository, or start a new run"
    )


def _tellers(roots: list[Root], default_branch: str) -> list[Root]:
    """The default branch, if it had commits: a copy of the catalog that is older than the run knows
    old tags, but not that."""
    told = [root for root in roots if root.hash != NO_ANCESTOR]
    return [root for root in told if root.root == default_branch] or told


def _knows(catalog: Client | Repository, hash: str) -> bool:
    try:
        catalog.resolve(RefSpec(None, hash))
    except ReferenceNotFound:
        return False
    return True

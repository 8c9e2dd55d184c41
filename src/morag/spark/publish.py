"""Write-audit-publish: work on a branch that is merged if its checks pass."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from morag.client import OutcomeUnknown, ServerUnreachable, UnexpectedAnswer
from morag.errors import MoragError, ReferenceAlreadyExists, ReferenceConflict, StoreBusy
from morag.model.meta import CommitMeta
from morag.model.names import NO_ANCESTOR_HASH
from morag.spark.errors import CannotRun
from morag.spark.lake_catalog import LakeCatalog
from morag.spark.opening import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from morag.catalog import Catalog
    from morag.spark.opening import Origin

Check: TypeAlias = "str | Callable[[SparkSession], DataFrame | None]"
"""SQL, or a function of the session that returns a DataFrame, which must have no rows. A function
may also raise an error instead, and return nothing."""

_SHOWN_ROWS: Final = 5
_LOG: Final = logging.getLogger("morag.spark")


class ChecksFailed(CannotRun):
    """A check failed, so the branch is not published; `found` has the result of each check."""

    def __init__(self, branch: str, found: Sequence[str]) -> None:
        super().__init__(f"Branch '{branch}' must not be published. " + ". ".join(found))
        self.found = tuple(found)


class Draft:
    """A branch in progress. `outcome` describes the result at the end."""

    def __init__(self, name: str, into: str, start: str) -> None:
        self.name = name
        self.into = into
        self.start = start
        """The commit where the branch began."""
        self.is_requested = False
        """Whether the publishing request was sent and not refused. Its result is known once the
        catalog has answered."""
        self.published: str | None = None
        """The commit of `into` that contains the work, once that is known."""
        self.outcome = f"Branch '{name}' is in progress"

    def __str__(self) -> str:
        return self.name


@contextmanager
def branch(
    spark: SparkSession,
    name: str,
    into: str = "main",
    *,
    checks: Sequence[Check] = (),
    catalog: str | None = None,
    origin: Origin | None = None,
    message: str | None = None,
    replace: bool = False,
    keep: bool = False,
) -> Iterator[Draft]:
    """Point a catalog of the session at a new branch, and publish the branch if all goes well.

    The branch starts at the head of `into`. At the end of the block the checks run on it; if they
    find nothing, it is merged and deleted (unless `keep` is set). If anything fails, `into` does
    not change, and the branch stays for inspection. `replace` reuses a branch that an earlier run
    left.

    `catalog` is needed if the session has several Nessie catalogs, `origin` if the server is not
    simply the `uri` of the catalog.
    """
    if isinstance(checks, str):
        raise CannotRun("Checks are a list; write checks=[...], also for a single one")
    if name == into:
        raise CannotRun(f"Branch '{name}' cannot be published into itself: name another one")
    lake = LakeCatalog.of(spark, catalog)
    with opened(origin or lake.origin(), write=True) as repository:
        draft = _begin(repository, name, into, replace)
        try:
            with lake.at(spark, name):
                yield draft
                audited = _audit(spark, repository, draft, checks)
                _publish(repository, draft, audited, message)
                if not keep:
                    _remove(repository, draft, audited)
        except BaseException as error:
            draft.outcome = _failure_outcome(draft, lake.name)
            error.add_note(draft.outcome)
            raise
        finally:
            _LOG.info("%s", draft.outcome)


def _begin(repository: Catalog, name: str, into: str, replace: bool) -> Draft:
    start = repository.references.get(into).hash
    try:
        repository.references.create_branch(name, f"@{start}")
    except ReferenceAlreadyExists as error:
        if not replace:
            raise ReferenceAlreadyExists(
                f"Branch '{name}' exists already, perhaps since a run that failed: look at it and "
                "delete it, or pass replace=True to start over"
            ) from error
        repository.references.assign(name, f"@{start}")
    return Draft(name, into, start)


def _audit(spark: SparkSession, repository: Catalog, draft: Draft, checks: Sequence[Check]) -> str:
    """The commit that passed all checks."""
    head = repository.references.get(draft.name).hash
    found = [text for check in checks if (text := _check_result(spark, check))]
    if found:
        raise ChecksFailed(draft.name, found)
    if repository.references.get(draft.name).hash != head:
        raise ReferenceConflict(
            f"Branch '{draft.name}' changed while it was checked: no other job may write to it"
        )
    return head


def _check_result(spark: SparkSession, check: Check) -> str | None:
    rows = spark.sql(check) if isinstance(check, str) else check(spark)
    name = check if isinstance(check, str) else getattr(check, "__name__", repr(check))
    if rows is None:  # The check forgot its `return`.
        raise CannotRun(f"Check '{name}' returned no DataFrame, so its result is unknown")
    found = rows.limit(_SHOWN_ROWS + 1).collect()
    if not found:
        return None
    shown = ", ".join(str(row.asDict()) for row in found[:_SHOWN_ROWS])
    more = " and more" if len(found) > _SHOWN_ROWS else ""
    return f"Check '{' '.join(name.split())}' found {shown}{more}"


def _publish(repository: Catalog, draft: Draft, audited: str, message: str | None) -> None:
    """Merge exactly the commit that was checked, not the current head."""
    name, into = draft.name, draft.into
    if audited == draft.start:
        draft.outcome = f"Nothing was written to branch '{name}', so '{into}' has not changed"
        return
    is_empty = repository.references.get(into).hash == NO_ANCESTOR_HASH
    draft.is_requested = True
    try:
        if is_empty:
            # `into` is empty, so there is nothing to merge with. It must still be empty when
            # assigned.
            repository.references.assign(into, f"{name}@{audited}", expected=NO_ANCESTOR_HASH)
            draft.published = audited
        else:
            meta = None if message is None else CommitMeta(message=message)
            merged = repository.merge(f"{name}@{audited}", into, meta=meta)
            draft.published = merged.resultant_target_hash
    except MoragError as error:
        draft.is_requested = not _is_refusal(error)
        raise
    draft.outcome = f"Branch '{name}' is published: '{into}' is at {draft.published}"


def _remove(repository: Catalog, draft: Draft, audited: str) -> None:
    """Delete the published branch. An error here must not look like a failed merge."""
    try:
        repository.references.delete(draft.name, expected=audited)
    except ReferenceConflict:
        draft.outcome += f"; branch '{draft.name}' has moved since and was not deleted"
    except MoragError as error:
        draft.outcome += f"; branch '{draft.name}' could not be deleted: {error}"


def _is_refusal(error: MoragError) -> bool:
    """Whether the change was certainly not made. After an error inside a server, or a lost
    response, that is unknown."""
    if isinstance(error, ServerUnreachable):
        return not isinstance(error, OutcomeUnknown)
    if isinstance(error, StoreBusy):
        return False
    status = error.http_status if isinstance(error, UnexpectedAnswer) else error.status
    return 400 <= status < 500


def _failure_outcome(draft: Draft, catalog: str) -> str:
    if draft.published is not None:
        return draft.outcome
    if draft.is_requested:
        return (
            f"It is unknown whether branch '{draft.name}' was merged: look at the log of "
            f"'{draft.into}' before you try again"
        )
    return (
        f"Branch '{draft.name}' was kept for inspection, for instance as "
        f"{catalog}.db.`orders@{draft.name}`; '{draft.into}' has none of its changes"
    )

"""Write, audit, publish: work on a branch, which is merged if its checks pass."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from morag.client import OutcomeUnknown, ServerUnreachable, UnexpectedAnswer
from morag.client.places import NO_ANCESTOR
from morag.errors import MoragError, ReferenceAlreadyExists, ReferenceConflict, StoreBusy
from morag.model.meta import CommitMeta
from morag.spark.catalogs import LakeCatalog
from morag.spark.errors import CannotRun
from morag.spark.opening import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from morag.client import Client
    from morag.spark.opening import Origin
    from morag.versions.repository import Repository

Check: TypeAlias = "str | Callable[[SparkSession], DataFrame | None]"
"""SQL, or a function of the session that returns a DataFrame: no row may come out. A function may
as well raise what is wrong and return nothing."""

_SHOWN_ROWS: Final = 5
_LOG: Final = logging.getLogger("morag.spark")


class ChecksFailed(CannotRun):
    """The branch holds what must not be published; `found` says what each check found."""

    def __init__(self, branch: str, found: Sequence[str]) -> None:
        super().__init__(f"Branch '{branch}' must not be published. " + ". ".join(found))
        self.found = tuple(found)


class Draft:
    """A branch that is being worked on. `outcome` says in the end what became of it."""

    def __init__(self, name: str, into: str, start: str) -> None:
        self.name = name
        self.into = into
        self.start = start
        """The commit where the branch began."""
        self.is_asked_for = False
        """Whether the catalog was told to publish it, and has not refused. What it did is known
        once it has answered."""
        self.published: str | None = None
        """The commit of `into` that has the work, once it is known to have it."""
        self.outcome = f"Branch '{name}' is being worked on"

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

    The branch begins where `into` is. At the end of the block the checks run on it; if they find
    nothing, it is merged and deleted (`keep` keeps it). Whatever fails leaves `into` as it was and
    the branch as it is, to be looked at. `replace` takes over a branch that an earlier run left.

    `catalog` is needed where the session has several Nessie catalogs, `origin` where the server is
    not simply the one of the catalog's `uri`.
    """
    if isinstance(checks, str):
        raise CannotRun("Checks are a list; write checks=[...], also for a single one")
    if name == into:
        raise CannotRun(f"Branch '{name}' cannot be published into itself: name another one")
    lake = LakeCatalog.of(spark, catalog)
    with opened(origin or lake.origin(), write=True) as repository:
        draft = _begun(repository, name, into, replace)
        try:
            with lake.at(spark, name):
                yield draft
                audited = _audited(spark, repository, draft, checks)
                _publish(repository, draft, audited, message)
                if not keep:
                    _remove(repository, draft, audited)
        except BaseException as error:
            draft.outcome = _left(draft, lake.name)
            error.add_note(draft.outcome)
            raise
        finally:
            _LOG.info("%s", draft.outcome)


def _begun(repository: Repository | Client, name: str, into: str, replace: bool) -> Draft:
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


def _audited(
    spark: SparkSession, repository: Repository | Client, draft: Draft, checks: Sequence[Check]
) -> str:
    """The commit that passed all checks."""
    head = repository.references.get(draft.name).hash
    found = [text for check in checks if (text := _finding(spark, check))]
    if found:
        raise ChecksFailed(draft.name, found)
    if repository.references.get(draft.name).hash != head:
        raise ReferenceConflict(
            f"Branch '{draft.name}' changed while it was checked: nobody else may write to it"
        )
    return head


def _finding(spark: SparkSession, check: Check) -> str | None:
    rows = spark.sql(check) if isinstance(check, str) else check(spark)
    name = check if isinstance(check, str) else getattr(check, "__name__", repr(check))
    if rows is None:  # Somebody has forgotten the `return`.
        raise CannotRun(f"Check '{name}' returned no DataFrame: nobody knows what it has found")
    found = rows.limit(_SHOWN_ROWS + 1).collect()
    if not found:
        return None
    shown = ", ".join(str(row.asDict()) for row in found[:_SHOWN_ROWS])
    more = " and more" if len(found) > _SHOWN_ROWS else ""
    return f"Check '{' '.join(name.split())}' found {shown}{more}"


def _publish(
    repository: Repository | Client, draft: Draft, audited: str, message: str | None
) -> None:
    """Bring exactly what was checked, whatever is on the branch now."""
    name, into = draft.name, draft.into
    if audited == draft.start:
        draft.outcome = f"Nothing was written to branch '{name}', so '{into}' is as it was"
        return
    is_empty = repository.references.get(into).hash == NO_ANCESTOR
    draft.is_asked_for = True
    try:
        if is_empty:
            # Nothing to merge with yet. It must still be so when it becomes what the branch is.
            repository.references.assign(into, f"{name}@{audited}", expected=NO_ANCESTOR)
            draft.published = audited
        else:
            meta = None if message is None else CommitMeta(message=message)
            merged = repository.merge(f"{name}@{audited}", into, meta=meta)
            draft.published = merged.resultant_target_hash
    except MoragError as error:
        draft.is_asked_for = not _is_refusal(error)
        raise
    draft.outcome = f"Branch '{name}' is published: '{into}' is at {draft.published}"


def _remove(repository: Repository | Client, draft: Draft, audited: str) -> None:
    """The work is published, so that nothing which goes wrong here may look as if it was not."""
    try:
        repository.references.delete(draft.name, expected=audited)
    except ReferenceConflict:
        draft.outcome += f"; branch '{draft.name}' has moved since and was not deleted"
    except MoragError as error:
        draft.outcome += f"; branch '{draft.name}' could not be deleted: {error}"


def _is_refusal(error: MoragError) -> bool:
    """Whether the change was certainly not made. Of what fails inside a server, or on the way back
    from it, nobody can tell."""
    if isinstance(error, ServerUnreachable):
        return not isinstance(error, OutcomeUnknown)
    if isinstance(error, StoreBusy):
        return False
    status = error.http_status if isinstance(error, UnexpectedAnswer) else error.status
    return 400 <= status < 500


def _left(draft: Draft, catalog: str) -> str:
    if draft.published is not None:
        return draft.outcome
    if draft.is_asked_for:
        return (
            f"Whether branch '{draft.name}' was merged is not known: look at the log of "
            f"'{draft.into}' before you do it again"
        )
    return (
        f"Branch '{draft.name}' is left to be looked at, for instance as "
        f"{catalog}.db.`orders@{draft.name}`; '{draft.into}' has nothing of it"
    )

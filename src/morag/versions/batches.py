"""Writing a batch: all its commits at once, and the only place where a branch moves forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from morag.backend.base import UNIQUE_KIND
from morag.errors import BadRequest, MoragError, ReferenceNotFound, StoreBusy
from morag.logic import history
from morag.model.names import full_name
from morag.persist.persist import UniqueTaken
from morag.versions.tickets import Attempt, Ticket

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.backend.base import ObjId, Ref, Row
    from morag.logic.references import References
    from morag.logic.reflog import RefLog
    from morag.logic.retry import Retries
    from morag.persist.objects import Commit, Obj
    from morag.persist.persist import Persist
    from morag.versions.known_heads import KnownHeads
    from morag.versions.tickets import Request
    from morag.versions.world import World


class BatchWriter:
    """Writes batches: the only place where a branch moves forward."""

    def __init__(
        self,
        persist: Persist,
        references: References,
        ref_log: RefLog,
        retries: Retries,
        heads: KnownHeads,
        world: World,
    ) -> None:
        self._persist = persist
        self._references = references
        self._ref_log = ref_log
        self._retries = retries
        self._world = world
        self._heads = heads

    def write(self, branch: str, batch: Sequence[Ticket]) -> None:
        """Settle every ticket of the batch."""
        name = full_name("BRANCH", branch)
        courtesy = self._heads.courtesy_seconds(name, self._world.monotonic())
        if courtesy:
            self._world.sleep(courtesy)
        tries = _Tries()
        try:
            for attempt in self._retries.attempts(batch[0].request.operation.value.lower()):
                try:
                    if self._attempt(name, batch, tries):
                        return
                except UniqueTaken as taken:
                    tries.claims -= taken.ids
                    for ticket in batch:
                        ticket.request.forget(taken.ids)
                except StoreBusy as busy:
                    attempt.failure = busy
        except StoreBusy as busy:
            if tries.unsettled:
                raise type(busy)(
                    f"{busy}. Nobody knows whether the change was made: look at the branch first"
                ) from busy
            raise

    def _attempt(self, name: str, batch: Sequence[Ticket], tries: _Tries) -> bool:
        """On the head as we left it, if we did; and where that is not it, on the one in the store.

        False if another server moved the reference meanwhile.
        """
        tries.began = self._world.monotonic()
        known = self._heads.take(name)
        if known is not None and self._write_once(known, batch, tries, is_sure=False):
            return True
        ref = self._references.find(name)
        if ref is None:
            raise self._no_such_branch(batch[0].request)
        if known is not None and ref.pointer != known.pointer:
            self._heads.lost(name)
        if self._write_once(ref, batch, tries, is_sure=True):
            return True
        self._heads.lost(name)
        return False

    def _no_such_branch(self, request: Request) -> MoragError:
        if self._references.find(full_name("TAG", request.branch)) is not None:
            verb = request.operation.value.lower()
            return BadRequest(f"Reference to {verb} into must be a branch.")
        return ReferenceNotFound.named(request.branch)

    def _write_once(
        self, ref: Ref, batch: Sequence[Ticket], tries: _Tries, *, is_sure: bool
    ) -> bool:
        """False if the batch is to be tried on the head as it is now.

        Another server moved the reference. Or perhaps it did, where that is not sure: then only a
        swap can tell, and without one nobody is refused, nor told that there was nothing to do.
        """
        for last, outcomes in tries.unsettled:
            # It was published after all, but we could not see it then. Not a second time!
            if history.was_published(self._persist, last, ref.pointer):
                _settle(outcomes)
                return True
        head = history.head_commit(self._persist, ref.pointer)
        outcomes = []
        objects: list[Obj] = []
        rows: list[Row] = []
        commits: list[Commit] = []
        try:
            for ticket in batch:
                try:
                    attempt = ticket.request.attempt(head)
                    new = self._persist.encoded(attempt.objects)
                except Exception as failure:  # noqa: BLE001 - it fails this ticket alone.
                    outcomes.append((ticket, failure))
                    continue
                outcomes.append((ticket, attempt))
                if attempt.commits:
                    # The next request builds on this commit, which nobody else can read yet.
                    self._persist.stage(attempt.objects)
                    objects += attempt.objects
                    rows += new
                    commits += attempt.commits
                    head = attempt.commits[-1]
            if commits:
                tries.unsettled.append((commits[-1], outcomes))
                if not self._publish(ref, batch, commits, objects, rows, tries):
                    return False
            elif not is_sure:
                return False
        finally:
            self._persist.unstage(objects)
        _settle(outcomes)
        return True

    def _publish(
        self,
        ref: Ref,
        batch: Sequence[Ticket],
        commits: Sequence[Commit],
        objects: Sequence[Obj],
        rows: Sequence[Row],
        tries: _Tries,
    ) -> bool:
        rows = self._without_own_claims(rows, tries)
        last = commits[-1]
        who = ", ".join(dict.fromkeys(t.request.who for t in batch if t.request.who))
        operation = batch[0].request.operation
        line = self._ref_log.line(ref.name, operation, ref.pointer, last.id, who, len(commits))
        try:
            moved = self._persist.publish(objects, ref, last.id, [line], rows)
            if moved is not None:
                now = self._world.monotonic()
                self._heads.left(moved, now, now - tries.began)
                return True
        except UniqueTaken:
            raise
        except Exception:
            # The reply is lost, but perhaps not the deed.
            if history.is_published(self._persist, ref.name, last):
                return True
            raise
        return history.is_published(self._persist, ref.name, last)

    def _without_own_claims(self, rows: Sequence[Row], tries: _Tries) -> Sequence[Row]:
        """A claim that an earlier try of ours has stored must not stand in our way now."""
        claims = {row.id for row in rows if row.kind == UNIQUE_KIND}
        own = claims & tries.claims
        tries.claims |= claims
        stored = self._persist.find(list(own)) if own else {}
        return [row for row in rows if row.id not in stored] if stored else rows


_Outcomes: TypeAlias = list[tuple[Ticket, Attempt | Exception]]


class _Tries:
    """What became of a batch so far: tries that may have been published, and ids they claimed."""

    __slots__ = ("began", "claims", "unsettled")

    def __init__(self) -> None:
        self.unsettled: list[tuple[Commit, _Outcomes]] = []
        self.claims: set[ObjId] = set()
        self.began = 0.0  # The last of them, by the world's clock.


def _settle(outcomes: _Outcomes) -> None:
    for ticket, outcome in outcomes:
        if isinstance(outcome, Attempt):
            ticket.succeed(outcome.result)
        else:
            ticket.fail(outcome)

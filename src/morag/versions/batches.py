"""Writes the commits of a batch at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from morag.errors import BadRequest, MoragError, ReferenceNotFound, StoreBusy
from morag.format.records import UNIQUE_KIND
from morag.index.spill import grows_quickly
from morag.logic import history
from morag.model.names import full_name
from morag.persist.persist import UniqueTaken, WouldWait
from morag.versions.syncs import Syncs
from morag.versions.tickets import Proposal, Ticket

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.format.objects import Commit, Obj
    from morag.format.records import ObjId, Ref, Row
    from morag.logic.references import References
    from morag.logic.reflog import RefLogWriter
    from morag.logic.retry import Retries
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
        ref_log: RefLogWriter,
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
        self.syncs = Syncs(persist.sync)

    def write(self, branch: str, batch: Sequence[Ticket], *, may_wait: bool = True) -> bool:
        """Settle every ticket of the batch. True if the results hold only after a sync.

        Without `may_wait`, a store that writes quickly is neither synced nor waited for:
        `WouldWait` means that nothing was written.
        """
        name = full_name("BRANCH", branch)
        state = _BatchState(may_wait=may_wait or not self._persist.writes_quickly)
        courtesy = self._heads.courtesy_seconds(name, self._world.monotonic())
        if courtesy:
            if not state.may_wait:
                raise WouldWait
            self._world.sleep(courtesy)
        try:
            for attempt in self._retries.attempts(batch[0].request.operation.value.lower()):
                try:
                    if self._attempt(name, batch, state):
                        return state.unsynced
                except UniqueTaken as taken:
                    state.claims -= taken.ids
                    for ticket in batch:
                        ticket.request.forget(taken.ids)
                except StoreBusy as busy:
                    attempt.failure = busy
                if not state.may_wait:
                    # A thread starts again, unless the store failed and may have written this.
                    raise attempt.failure if attempt.failure and state.unsettled else WouldWait
            raise AssertionError("attempts end by an exception")
        except StoreBusy as busy:
            if state.unsettled:
                raise type(busy)(
                    f"{busy}. It is unknown whether the change was made: check the branch first"
                ) from busy
            raise

    def _attempt(self, name: str, batch: Sequence[Ticket], state: _BatchState) -> bool:
        """Try on the known head if there is one, and if that is stale, on the stored head.

        False if another server moved the reference meanwhile.
        """
        state.began = self._world.monotonic()
        known = self._heads.take(name)
        if known is not None and self._write_once(known, batch, state, is_sure=False):
            return True
        ref = self._stored(name, state)
        if ref is None:
            raise self._no_such_branch(batch[0].request)
        if known is not None and ref.pointer != known.pointer:
            self._heads.moved_by_others(name)
        if self._write_once(ref, batch, state, is_sure=True):
            return True
        self._heads.moved_by_others(name)
        return False

    def _stored(self, name: str, state: _BatchState) -> Ref | None:
        """The stored reference, or None. Its creation or removal is completed first."""
        if state.may_wait:
            return self._references.completed(name)
        ref = self._persist.ref(name)
        if ref is None or ref.deleted:
            raise WouldWait  # Another thread may be creating or removing it.
        return ref

    def _no_such_branch(self, request: Request) -> MoragError:
        if self._references.completed(full_name("TAG", request.branch)) is not None:
            verb = request.operation.value.lower()
            return BadRequest(f"Reference to {verb} into must be a branch.")
        return ReferenceNotFound.named(request.branch)

    def _write_once(
        self, ref: Ref, batch: Sequence[Ticket], state: _BatchState, *, is_sure: bool
    ) -> bool:
        """False if the batch must be tried again on the current head.

        That is the case if another server moved the reference. It is also the case if no commit was
        built on a head that may be stale: without a swap nothing shows whether the head is current,
        so neither a failure nor "nothing to do" may be reported.
        """
        for last, outcomes in state.unsettled:
            # An earlier attempt was published after all: do not publish it twice.
            if history.was_published(self._persist, last, ref):
                _settle(outcomes)
                return True
        head = history.head_commit(self._persist, ref.pointer)
        if not (state.may_wait or self._is_brief_on(head, batch)):
            raise WouldWait
        outcomes = []
        objects: list[Obj] = []
        staged: list[Obj] = []
        rows: list[Row] = []
        commits: list[Commit] = []
        try:
            for ticket in batch:
                try:
                    proposal = ticket.request.propose(head)
                    new = self._persist.encoded(proposal.objects)
                except Exception as failure:  # noqa: BLE001 - It fails only this ticket.
                    outcomes.append((ticket, failure))
                    continue
                outcomes.append((ticket, proposal))
                if proposal.commits:
                    if ticket is not batch[-1]:
                        # The next request builds on this commit, which is not stored yet.
                        self._persist.stage(proposal.objects)
                        staged += proposal.objects
                    objects += proposal.objects
                    rows += new
                    commits += proposal.commits
                    head = proposal.commits[-1]
            if commits:
                state.unsettled.append((commits[-1], outcomes))
                if not self._publish(ref, batch, commits, objects, rows, state):
                    return False
            elif not is_sure:
                return False
        finally:
            self._persist.unstage(staged)
        _settle(outcomes)
        return True

    def _is_brief_on(self, head: Commit | None, batch: Sequence[Ticket]) -> bool:
        """Whether the batch can be built on this head within milliseconds."""

        def added_bytes() -> int:
            return sum(ticket.request.index_bytes for ticket in batch)

        if head is not None and not grows_quickly(self._persist, head, added_bytes):
            return False
        return all(ticket.request.is_brief_on(head) for ticket in batch)

    def _publish(
        self,
        ref: Ref,
        batch: Sequence[Ticket],
        commits: Sequence[Commit],
        objects: Sequence[Obj],
        rows: Sequence[Row],
        state: _BatchState,
    ) -> bool:
        rows = self._without_own_claims(rows, state)
        last = commits[-1]
        who = ", ".join(dict.fromkeys(t.request.who for t in batch if t.request.who))
        operation = batch[0].request.operation
        line = self._ref_log.line(ref.name, operation, ref.pointer, last.id, who, len(commits))
        try:
            moved = self._persist.publish(
                objects, ref, last.id, [line], rows, may_wait=state.may_wait
            )
            if moved is not None:
                state.unsynced = not state.may_wait and self._persist.needs_sync
                now = self._world.monotonic()
                self._heads.moved_by_us(moved, now, now - state.began)
                return True
        except (UniqueTaken, WouldWait):
            raise
        except Exception:
            # After any error the swap may have succeeded: the reply may be lost.
            if history.is_published(self._persist, ref.name, last):
                return True
            raise
        if not state.may_wait:
            raise WouldWait  # Nothing was written, and the search below may walk a long history.
        return history.is_published(self._persist, ref.name, last)

    def _without_own_claims(self, rows: Sequence[Row], state: _BatchState) -> Sequence[Row]:
        """A claim stored by an earlier attempt of this batch is not a conflict."""
        claims = {row.id for row in rows if row.kind == UNIQUE_KIND}
        own = claims & state.claims
        state.claims |= claims
        stored = self._persist.find(list(own)) if own else {}
        return [row for row in rows if row.id not in stored] if stored else rows


_Outcomes: TypeAlias = list[tuple[Ticket, Proposal | Exception]]


class _BatchState:
    """Attempts of a batch that may have been published, and the content ids that they claimed."""

    __slots__ = ("began", "claims", "may_wait", "unsettled", "unsynced")

    def __init__(self, *, may_wait: bool) -> None:
        self.may_wait = may_wait
        self.unsynced = False
        self.unsettled: list[tuple[Commit, _Outcomes]] = []
        self.claims: set[ObjId] = set()
        self.began = 0.0  # When the last attempt started, by the monotonic clock.


def _settle(outcomes: _Outcomes) -> None:
    for ticket, outcome in outcomes:
        if isinstance(outcome, Proposal):
            ticket.succeed(outcome.result)
        else:
            ticket.fail(outcome)

"""Answers that wait: for a thread that may block, or for the lane of a branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from morag.api.http import Response
from morag.versions.commit import CommitRequest, CommitResult
from morag.versions.repository import Repository

if TYPE_CHECKING:
    from morag.api.http import Spawn
    from morag.versions.lanes import Ticket

Render: TypeAlias = Callable[[Callable[[], "Response"]], "Response"]
"""Makes a response of whatever the call gives or raises."""


class InThread(Struct, frozen=True):
    """Work that may take long: it must not hold up the requests of others."""

    work: Callable[[], Response]
    render: Render

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        spawn(lambda: done(self.render(self.work)))


class InLane(Struct, frozen=True):
    """A commit. No thread waits for it: whoever drives the lane calls back."""

    repository: Repository
    request: CommitRequest
    answer: Callable[[CommitResult], Response]
    render: Render

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        def finished(ticket: Ticket) -> None:
            done(self.render(lambda: self.answer(ticket.result())))

        self.repository.start(self.request, spawn, finished)

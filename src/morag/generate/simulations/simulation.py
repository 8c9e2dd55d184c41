"""`Simulation`: what all kinds of simulated load share."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING

from msgspec.structs import replace

from morag.errors import MoragError, ReferenceAlreadyExists
from morag.generate.branch_tips import BranchTip, with_retries
from morag.generate.workers import Worker, work
from morag.model.content import IcebergTable
from morag.model.operations import Put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from threading import Event

    from morag.client import Client
    from morag.generate.measuring import Measurements
    from morag.model.keys import ContentKey


class Simulation:
    """Simulated users of a server. A subclass says what they do."""

    def __init__(self, client: Client, measurements: Measurements) -> None:
        self.client = client
        self.measured = measurements

    def prepare(self) -> None:
        """Create what the users need. This is not measured."""

    def users(self) -> Sequence[Worker]:
        raise NotImplementedError

    @property
    def seconds(self) -> float | None:
        """When the simulation ends, unless its users have nothing left to do."""
        return None

    def run(self, stop: Event, *, look: Callable[[], None] = lambda: None) -> None:
        work(self.users(), stop, seconds=self.seconds, look=look)

    @contextmanager
    def request(self, name: str) -> Iterator[None]:
        """Measure a request. A failure is counted, and ends the current step."""
        try:
            with self.measured.request(name):
                yield
        except MoragError as error:
            self.measured.failed(name, error)
            raise StepFailed from error

    def update(
        self, tip: BranchTip, key: ContentKey, change: IcebergTable, message: str, who: str = ""
    ) -> None:
        """Read a table and commit its next state, again after a conflict.

        `change` has the new location and snapshot; everything else stays. `who` distinguishes the
        requests of kinds of users.
        """

        def attempt() -> None:
            with self.request(f"{who}read"):
                existing = self.client.contents.get_all(tip.spec, [key]).get(key)
            table = change if existing is None else replace(change, id=existing.id)
            with self.measured.request(f"{who}commit"):
                put = Put(key, table)
                tip.head = self.client.commit(tip.name, [put], message, expected=tip.head).hash
            self.measured.committed(1)

        try:
            with_retries(self.client, self.measured, tip, attempt)
        except MoragError as error:
            self.measured.failed(f"{who}commit", error)
            raise StepFailed from error

    def created_or_found(self, name: str) -> BranchTip:
        """A branch, which starts empty if it is new."""
        try:
            return BranchTip.of(self.client.references.create_branch(name, None))
        except ReferenceAlreadyExists:
            return BranchTip.of(self.client.references.get(name))


class StepFailed(Exception):
    """A request failed, and was counted. The user goes on with the next step."""


def paced(step: Callable[[int], None], *, rate: float, steps: int | None = None) -> Worker:
    """A user that takes steps at a rate per second; 0 means as fast as possible."""

    def tried(number: int) -> None:
        with suppress(StepFailed):
            step(number)

    numbers = count() if steps is None else iter(range(steps))
    return Worker(tried, numbers, lambda number: number / rate if rate else 0.0)


def simple_table(location: str, snapshot_id: int = 42) -> IcebergTable:
    return IcebergTable(
        metadata_location=f"generated:///{location}",
        snapshot_id=snapshot_id,
        schema_id=43,
        spec_id=44,
        sort_order_id=45,
    )

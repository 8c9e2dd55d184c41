"""One workload on one server, in one or several slices of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.load.driver import drive

if TYPE_CHECKING:
    from morag.load.data_set import DataSet
    from morag.load.driver import Outcome
    from morag.load.workloads import Workload


class Trial:
    """Continues in each slice where the last one stopped, and knows how much was done in all."""

    def __init__(self, data: DataSet, workload: Workload, clients: int) -> None:
        self._data = data
        self._workload = workload
        self._load = workload.prepare(data, clients)
        self._commits_before = self._commits()
        self._units = 0

    def drive(self, seconds: float) -> Outcome:
        outcome = drive(self._data.target.address, self._load.clients, seconds)
        self._units += outcome.units
        return outcome

    def check_commits(self, outcome: Outcome) -> None:
        """Report a failure if the branches do not have exactly the acknowledged commits."""
        stored = self._commits() - self._commits_before
        made = self._units // self._workload.units_per_commit
        if self._load.branches and stored != made:
            outcome.failed(b"%d commits made, %d found" % (made, stored))

    def _commits(self) -> int:
        return sum(self._data.commits_on(branch) for branch in self._load.branches)

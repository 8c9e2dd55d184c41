"""Commits of many clients through several servers on one database, and a check of the result.

Each client has its own table, and all clients share a few others. Every attempt is recorded with
its answer. Afterwards each branch must be a line of commits that contains every acknowledged commit
once and no refused one, and every refusal must have a reason. A read must show every commit that
was acknowledged before the read began, whichever server it asked.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag import ContentKey, IcebergTable, Put, ReferenceConflict
from morag.client import Client
from morag.errors import ServiceUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.model.results import LogEntry

BRANCHES: Final = ("main", "first", "second")
SHARED: Final = tuple(f"shared-{number}" for number in range(4))
_OWN_CHANCE: Final = 0.6
_FRESH_CHANCE: Final = 0.5
_TABLES: Final = "tables"


class Attempt(Struct):
    """An attempt to commit: `hash` if it was acknowledged, `conflict` if it was refused.

    Without both, the outcome is unknown: the answer was lost, or the store was busy.
    """

    uri: str
    branch: str
    table: str
    message: str
    expected: str
    hash: str = ""
    conflict: str = ""


class Read(Struct, frozen=True):
    """A head that a client read, and a commit that was acknowledged before the read began."""

    uri: str
    branch: str
    acknowledged: str
    head: str


class History:
    """The attempts and reads of all clients, in no order."""

    def __init__(self, uris: Sequence[str], clients: int, seed: int = 0) -> None:
        self.attempts: list[Attempt] = []
        self.reads: list[Read] = []
        self._acknowledged: dict[str, str] = {}
        self._uris = uris
        self._clients = clients
        self._seed = seed
        self._ids: dict[str, str] = {}
        self._runs = 0

    def prepare(self) -> None:
        """Create all tables on all branches."""
        names = [*SHARED, *map(_own, range(self._clients))]
        with Client(self._uris[0]) as client:
            client.commit("main", [_put(name, None, 0) for name in names], _TABLES)
            for entry in client.contents.entries("main"):
                self._ids[entry.key.elements[-1]] = entry.content_id
            for branch in BRANCHES[1:]:
                client.references.create_branch(branch, "main")

    def run(self, seconds: float) -> None:
        """Let all clients commit for a while; raises an unexpected error of any client."""
        self._runs += 1
        end = monotonic() + seconds
        with ThreadPoolExecutor(self._clients) as threads:
            for done in [threads.submit(self._work, n, end) for n in range(self._clients)]:
                done.result()

    def _work(self, number: int, end: float) -> None:
        worker = f"{self._runs}/{number}"
        random, seen, made = Random(f"{self._seed}/{worker}"), dict[str, str](), 0
        uri = self._uris[number % len(self._uris)]
        with Client(uri) as client:
            while monotonic() < end:
                made += 1
                branch = random.choice(BRANCHES)
                own = random.random() < _OWN_CHANCE
                table = _own(number) if own else random.choice(SHARED)
                try:
                    if branch not in seen or random.random() < _FRESH_CHANCE:
                        acknowledged = self._acknowledged.get(branch)
                        seen[branch] = client.references.get(branch).hash or ""
                        if acknowledged is not None:
                            self.reads.append(Read(uri, branch, acknowledged, seen[branch]))
                except ServiceUnavailable:
                    continue
                attempt = Attempt(uri, branch, table, f"{worker}/{made}", seen.pop(branch))
                put = _put(table, self._ids[table], number * 1_000_000 + made)
                try:
                    result = client.commit(
                        branch, [put], attempt.message, expected=attempt.expected
                    )
                    attempt.hash = seen[branch] = self._acknowledged[branch] = result.hash
                except ReferenceConflict as refused:
                    attempt.conflict = str(refused)
                except ServiceUnavailable:
                    pass
                self.attempts.append(attempt)

    def check(self) -> None:
        """Raises if the stored commits contradict the answers to clients."""
        assert any(attempt.hash for attempt in self.attempts), "no commit was made"
        for branch in BRANCHES:
            first, *others = (_log(uri, branch) for uri in self._uris)
            assert all(log == first for log in others), "the servers return different logs"
            attempts = [each for each in self.attempts if each.branch == branch]
            self._check_branch(branch, attempts, first)

    def shares(self) -> list[float]:
        """The share of each server in all commits."""
        made = Counter(attempt.uri for attempt in self.attempts if attempt.hash)
        return [made[uri] / made.total() for uri in self._uris]

    def _check_branch(self, branch: str, attempts: list[Attempt], log: list[LogEntry]) -> None:
        for newer, older in pairwise(log):
            assert newer.parent == older.meta.hash
        position = {entry.meta.hash: at for at, entry in enumerate(log)}
        for read in self.reads:
            if read.branch == branch:
                assert position[read.head] <= position[read.acknowledged], f"stale: {read}"
        messages = Counter(entry.meta.message for entry in log)
        assert messages.keys() <= {_TABLES, *(attempt.message for attempt in attempts)}
        for attempt in attempts:
            if attempt.hash:
                assert attempt.hash in position, f"lost: {attempt}"
                assert position[attempt.hash] < position[attempt.expected], f"moved: {attempt}"
                assert log[position[attempt.hash]].meta.message == attempt.message
                assert messages[attempt.message] == 1, f"doubled: {attempt}"
            elif attempt.conflict:
                assert not messages[attempt.message], f"refused and made: {attempt}"
                since = log[: position[attempt.expected]]
                assert any(attempt.table in _tables(entry) for entry in since), attempt
            else:
                assert messages[attempt.message] <= 1, f"doubled: {attempt}"


def _log(uri: str, branch: str) -> list[LogEntry]:
    with Client(uri) as client:
        return list(client.history.log(branch, with_operations=True))


def _own(number: int) -> str:
    return f"own-{number}"


def _put(table: str, id: str | None, snapshot: int) -> Put:
    content = IcebergTable(
        id=id,
        metadata_location=f"s3://lake/{table}/{snapshot}.json",
        snapshot_id=snapshot,
        schema_id=0,
        spec_id=0,
        sort_order_id=0,
    )
    return Put(ContentKey.of(table), content)


def _tables(entry: LogEntry) -> set[str]:
    return {operation.key.elements[-1] for operation in entry.operations or ()}

"""Reads the history of a catalog into a spool, on several threads."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TYPE_CHECKING, Final, ParamSpec, TypeAlias, TypeVar

from morag.errors import ServiceUnavailable
from morag.format.ids import NO_ANCESTOR
from morag.versions.resolve import object_id
from morag.versions.transfer.logged_commits import logged_commit, with_inherited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from morag.catalog import Catalog
    from morag.format.export_messages import ExportedCommit
    from morag.format.records import ObjId
    from morag.model.results import LogEntry, Page
    from morag.versions.transfer.commit_spool import CommitSpool

P = ParamSpec("P")
T = TypeVar("T")
_Walks: TypeAlias = "set[Future[ObjId | None]]"

_FIRST_PAGE: Final = 8
"""Commits that a walk requests first: most merged branches are short."""
_LARGEST_PAGE: Final = 250  # Servers return no more at once.
_PAGE_BYTES: Final = 4 * 1024 * 1024
_LONG: Final = 500
"""A walk that still reads new commits after this many goes on in ranges, side by side."""
_RANGE: Final = 2000
_AT_ONCE: Final = 10_000  # Walks that wait for a thread.
_WAITS_SECONDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0)


class HistoryReader:
    """Reads commits and all their ancestors, by first parents and by merge parents, each once.

    A walk along first parents ends at a commit that is in the spool already. Commits are named by
    their hashes alone, so references may move or disappear meanwhile.
    """

    def __init__(
        self,
        catalog: Catalog,
        spool: CommitSpool,
        connections: int,
        sleep: Callable[[float], None],
        count: Callable[[int], None] = lambda read: None,
        *,
        is_morag: bool = True,
    ) -> None:
        """`count` is called with the number of commits that were just read, by several threads."""
        self._catalog = catalog
        self._spool = spool
        self._sleep = sleep
        self._count = count
        self._is_morag = is_morag
        self._page_size = _FIRST_PAGE
        # The thread that calls `read` needs a connection, too.
        self._pool = ThreadPoolExecutor(max(1, connections - 1), "history")

    def read(self, first: ObjId, others: Iterable[ObjId]) -> None:
        """Read everything that these commits need.

        `first` is the head of the default branch. Most other histories meet its history, so they
        begin when it is complete.
        """
        self._read_from([first])
        others = iter(others)
        while some := list(islice(others, _AT_ONCE)):
            self._read_from(some)
        while missing := self._spool.missing(_AT_ONCE):
            self._read_from(missing)

    def close(self) -> None:
        """Requests that were sent are waited for."""
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> HistoryReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read_from(self, heads: Iterable[ObjId]) -> None:
        walks: _Walks = set()
        ranges: _Walks = set()
        for head in heads:
            if head != NO_ANCESTOR and head not in self._spool:
                walks.add(self._pool.submit(self._walk, head, _LONG, _FIRST_PAGE))
        while walks:
            done, walks = wait(walks, return_when=FIRST_COMPLETED)
            for walk in done:
                rest = walk.result()
                if rest is not None:
                    ranges |= self._read_in_ranges(rest)
        for each in ranges:
            each.result()

    def _read_in_ranges(self, start: ObjId) -> _Walks:
        """Read a long history in ranges, of which each starts where the one before ends.

        A server finds the start of the next range in a small part of the time that reading takes.
        """
        ranges: _Walks = set()
        while True:
            ranges.add(self._pool.submit(self._walk, start, _RANGE, self._page_size))
            start = self._patiently(self._ancestor, start, _RANGE)
            if start == NO_ANCESTOR or start in self._spool:
                return ranges

    def _walk(self, at: ObjId, most: int, page_size: int) -> ObjId | None:
        """Read at most this many commits along first parents.

        Returns the commit to go on from; None at the end, and before a commit that was read.
        """
        if at in self._spool:
            return None
        while most:
            page = self._patiently(self._page, at, min(page_size, most))
            commits = [logged_commit(e, is_from_morag=self._is_morag) for e in page.items]
            if commits and commits[-1].parent == NO_ANCESTOR and commits[-1].id not in self._spool:
                commits[-1] = self._patiently(self._with_inherited, commits[-1])
            added = self._spool.add(commits)
            self._count(added)
            if added < len(commits) or not commits or commits[-1].parent == NO_ANCESTOR:
                return None
            at = commits[-1].parent
            most -= len(commits)
            page_size = self._page_size = _next_size(commits)
        return at

    def _page(self, at: ObjId, most: int) -> Page[LogEntry]:
        return self._catalog.history.log(f"@{at.hex()}", with_operations=True).page(most)

    def _with_inherited(self, first: ExportedCommit) -> ExportedCommit:
        at = f"@{first.id.hex()}"
        return with_inherited(first, self._catalog.contents.entries(at, with_content=True))

    def _ancestor(self, at: ObjId, distance: int) -> ObjId:
        return object_id(self._catalog.resolve(f"@{at.hex()}~{distance}").hash)

    def _patiently(self, read: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Repeat a read while the server is not available, for about a quarter of a minute."""
        for seconds in _WAITS_SECONDS:
            try:
                return read(*args, **options)
            except ServiceUnavailable:
                self._sleep(seconds)
        return read(*args, **options)


def _next_size(commits: list[ExportedCommit]) -> int:
    """The size of the next page: twice the size, unless that would be too many bytes."""
    size_bytes = sum(len(op.value or b"") for commit in commits for op in commit.operations)
    fitting = _PAGE_BYTES * len(commits) // max(1, size_bytes)
    return max(1, min(2 * len(commits), fitting, _LARGEST_PAGE))

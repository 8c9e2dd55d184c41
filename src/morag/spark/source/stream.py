"""A branch as a stream: every commit that is new on it, delivered exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from morag.model.names import NO_ANCESTOR_HASH, check_hash, check_reference_name
from morag.spark.errors import CannotRun
from morag.spark.opening import opened
from morag.spark.source.commit_ranges import commits_after, fork_of
from morag.spark.source.log import log_batches
from morag.spark.source.options import refuse_unknown, shows_operations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from morag.catalog import Catalog
    from morag.spark.opening import Origin

Offset: TypeAlias = "dict[str, str]"

BEGINNING: Final = "beginning"
NOW: Final = "now"
_OPTIONS: Final = frozenset({"table", "ref", "operations", "start", "max_commits"})
_COMMITS_PER_TASK: Final = 1000


class StreamBroken(CannotRun):
    """The last commit that a query has read is no longer on its branch."""


class Commits(InputPartition):
    """Consecutive commits, both ends included."""

    def __init__(self, newest: str, oldest: str) -> None:
        self.newest = newest
        self.oldest = oldest


class CommitStream(DataSourceStreamReader):
    """An offset is the last commit that was delivered.

    Spark writes the next offset to its checkpoint before it requests rows, and after a crash
    it requests the rows between the same two offsets. These are the same rows, because history
    never changes.

    A new query delivers the commits after the one that the option `start` names: the empty state
    (`beginning`), the head of the branch when the query starts (`now`), or a hash.
    """

    def __init__(self, origin: Origin, options: Mapping[str, str], schema: StructType) -> None:
        refuse_unknown("A stream", options, _OPTIONS)
        self._origin = origin
        self._schema = schema
        self._branch = options.get("ref")
        if self._branch is not None:
            _check_branch(self._branch)
        self._start = _start(options.get("start", BEGINNING))
        self._max_commits = _max_commits(options.get("max_commits"))
        self._with_operations = shows_operations(options)
        self._position: str | None = None  # The end of the last planned batch.
        # The commits after `_behind`, newest first, as far as they were read.
        self._ahead: list[str] = []
        self._behind: str | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name.
        """The same at every call: when the first batch is repeated, Spark calls this again.

        So `now` is not resolved here. The first batch of such a query is empty, and its end is the
        head.
        """
        return _offset(self._start)

    def latestOffset(self) -> Offset:  # noqa: N802 - Spark's name.
        """The head of the branch, or at most `max_commits` after the previous offset.

        A branch that was moved must be detected here: the returned offset goes to the checkpoint,
        and every restart would fail with it.
        """
        position = self._start if self._position is None else self._position
        with opened(self._origin) as catalog:
            branch = self._branch or catalog.default_branch
            head = catalog.references.get(branch).hash
            if position == NOW:
                return _offset(head)
            if not self._look_ahead(catalog, position, head):
                if self._position is None:
                    raise CannotRun(
                        f"Option 'start' names {position}, which is not on branch '{branch}'"
                    )
                raise StreamBroken(_broken_message(catalog, branch, position, head))
        if not self._ahead:
            return _offset(position)
        return _offset(self._ahead[max(0, len(self._ahead) - self._max_commits)])

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Spark also calls this with equal offsets, on a restart, to pass the last position."""
        after, last = start["after"], end["after"]
        self._position = last
        if after in (last, NOW):
            self._forget_through(last)
            return []
        hashes = self._planned(after, last)
        return [
            Commits(hashes[max(at - _COMMITS_PER_TASK, 0)], hashes[at - 1])
            for at in range(len(hashes), 0, -_COMMITS_PER_TASK)
        ]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        assert isinstance(partition, Commits), "Spark passes on what `partitions` returned"
        with opened(self._origin) as catalog:
            newest_first = list(
                catalog.history.log(
                    f"@{partition.newest}",
                    until=partition.oldest,
                    with_operations=self._with_operations,
                )
            )
        yield from log_batches(reversed(newest_first), self._schema)

    def _look_ahead(self, catalog: Catalog, position: str, head: str) -> bool:
        """Fill `_ahead` with the commits from the position to the head, if it is an ancestor."""
        if self._ahead and (more := commits_after(catalog, self._ahead[0], head)) is not None:
            self._ahead[:0] = more
            return True
        found = commits_after(catalog, position, head)
        if found is None:
            return False
        self._ahead, self._behind = found, position
        return True

    def _planned(self, after: str, last: str) -> list[str]:
        """The commits of a batch, newest first."""
        if after == self._behind and last in self._ahead:
            hashes = self._ahead[self._ahead.index(last) :]
            self._forget_through(last)
            return hashes
        # The batch is repeated after a restart, or was planned by another process.
        with opened(self._origin) as catalog:
            found = commits_after(catalog, after, last)
            if found is None:
                branch = self._branch or catalog.default_branch
                raise StreamBroken(_broken_message(catalog, branch, after, last))
            return found

    def _forget_through(self, last: str) -> None:
        if last in self._ahead:
            del self._ahead[self._ahead.index(last) :]
        else:
            self._ahead.clear()
        self._behind = last


def _offset(after: str) -> Offset:
    return {"after": after}


def _check_branch(ref: str) -> None:
    if "@" in ref:
        raise CannotRun(
            f"A stream follows a branch, so 'ref' must be its name alone, not '{ref}'; "
            "to begin after a commit, name its hash by the option 'start'"
        )
    check_reference_name(ref)


def _start(text: str) -> str:
    if text == BEGINNING:
        return NO_ANCESTOR_HASH
    if text == NOW:
        return NOW
    hash = check_hash(text)
    if len(hash) != len(NO_ANCESTOR_HASH):
        raise CannotRun(f"Option 'start' must be '{BEGINNING}', '{NOW}' or a whole hash")
    return hash


def _max_commits(text: str | None) -> int:
    """The maximum number of commits in a batch."""
    if text is None:
        return 1 << 62
    if not text.isdecimal() or int(text) == 0:
        raise CannotRun(f"Option 'max_commits' must be a number above 0, not {text!r}")
    return int(text)


def _broken_message(catalog: Catalog, branch: str, position: str, head: str) -> str:
    fork = fork_of(catalog, position, head)
    shared = "nothing" if fork == NO_ANCESTOR_HASH else f"the history up to {fork}"
    start = BEGINNING if fork == NO_ANCESTOR_HASH else fork
    return (
        f"Branch '{branch}' was moved to {head}, which does not contain {position}, the last "
        f"commit that this query has read. Both share {shared}; commits that the query delivered "
        "after that are no longer on the branch. To continue, undo the effects of those commits "
        f"and start a query with a new checkpoint and .option('start', '{start}'); or ignore them "
        f"and start it with '{NOW}'; or assign the branch back"
    )

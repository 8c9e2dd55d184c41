"""A branch as a stream: every commit that is new on it, delivered exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from morag.client.places import NO_ANCESTOR
from morag.model.names import check_hash, check_reference_name
from morag.spark.errors import CannotRun
from morag.spark.opening import opened
from morag.spark.source.following import commits_after, fork_of
from morag.spark.source.log import log_batches
from morag.spark.source.options import shows_operations
from morag.spark.source.unknown import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from morag.client import Client
    from morag.spark.opening import Origin
    from morag.versions.repository import Repository

Offset: TypeAlias = "dict[str, str]"

BEGINNING: Final = "beginning"
NOW: Final = "now"
_OPTIONS: Final = frozenset({"table", "ref", "operations", "start", "max_commits"})
_COMMITS_PER_TASK: Final = 1000


class StreamBroken(CannotRun):
    """What a query has read is not on its branch any more."""


class Commits(InputPartition):
    """Commits that follow each other, both ends included."""

    def __init__(self, newest: str, oldest: str) -> None:
        self.newest = newest
        self.oldest = oldest


class CommitStream(DataSourceStreamReader):
    """An offset is the last commit that was delivered.

    Spark writes the next offset to its checkpoint before it asks for rows, and after a crash asks
    for the rows between the same two offsets. History never changes, so they are the same rows.

    A new query delivers what follows the commit that the option `start` names: nothing at all
    (`beginning`), where the branch is when the query starts (`now`), or a hash.
    """

    def __init__(self, origin: Origin, options: Mapping[str, str], schema: StructType) -> None:
        refuse_unknown("A stream", options, _OPTIONS)
        self._origin = origin
        self._schema = schema
        self._branch = options.get("ref")
        if self._branch is not None:
            _check_branch(self._branch)
        self._start = _start(options.get("start", BEGINNING))
        self._most = _most(options.get("max_commits"))
        self._with_operations = shows_operations(options)
        self._position: str | None = None  # Up to where Spark has planned.
        self._ahead: list[str] = []  # What follows `_behind`, newest first, as far as we looked.
        self._behind: str | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name.
        """The same at every call: when the first batch is repeated, Spark asks again.

        So `now` stays a word. The first batch of such a query is empty, and its end says when.
        """
        return _offset(self._start)

    def latestOffset(self) -> Offset:  # noqa: N802 - Spark's name.
        """Where the branch is, or `max_commits` further than before.

        A branch that was moved must be noticed here: what is returned goes to the checkpoint, and
        a restart would stumble over it for ever.
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
                raise StreamBroken(_explained(catalog, branch, position, head))
        if not self._ahead:
            return _offset(position)
        return _offset(self._ahead[-self._most if self._most < len(self._ahead) else 0])

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Also called with twice the same, when a query restarts, to say how far it was."""
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
        assert isinstance(partition, Commits), "they are ours"
        with opened(self._origin) as catalog:
            newest_first = list(
                catalog.history.log(
                    f"@{partition.newest}",
                    until=partition.oldest,
                    with_operations=self._with_operations,
                )
            )
        yield from log_batches(reversed(newest_first), self._schema)

    def _look_ahead(self, catalog: Repository | Client, position: str, head: str) -> bool:
        """Make `_ahead` lead from the position to the head, if anything does."""
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
        # A batch that is repeated after a restart, or one that was planned by another process.
        with opened(self._origin) as catalog:
            found = commits_after(catalog, after, last)
            if found is None:
                branch = self._branch or catalog.default_branch
                raise StreamBroken(_explained(catalog, branch, after, last))
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
        return NO_ANCESTOR
    if text == NOW:
        return NOW
    hash = check_hash(text)
    if len(hash) != len(NO_ANCESTOR):
        raise CannotRun(f"Option 'start' must be '{BEGINNING}', '{NOW}' or a whole hash")
    return hash


def _most(text: str | None) -> int:
    """How many commits a batch may have."""
    if text is None:
        return 1 << 62
    if not text.isdecimal() or int(text) == 0:
        raise CannotRun(f"Option 'max_commits' must be a number above 0, not {text!r}")
    return int(text)


def _explained(catalog: Repository | Client, branch: str, position: str, head: str) -> str:
    fork = fork_of(catalog, position, head)
    shared = "nothing" if fork == NO_ANCESTOR else f"the history up to {fork}"
    start = BEGINNING if fork == NO_ANCESTOR else fork
    return (
        f"Branch '{branch}' is at {head} and does not hold {position} any more, up to which this "
        f"query has read: it was moved elsewhere. Both have {shared}; what the query delivered "
        "after that is no longer on the branch. To go on, undo what came of those commits and "
        f"start a query with a new checkpoint and .option('start', '{start}'); to go on as if "
        f"nothing had been, with '{NOW}'; or assign the branch back"
    )

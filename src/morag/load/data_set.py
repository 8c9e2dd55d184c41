"""The branches, tables and references that the workloads read and change, each created when needed.

All of them are on references of their own, whose names start with a prefix that nobody else uses.
"""

from __future__ import annotations

from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from msgspec import Struct

from morag.client.errors import ServerUnreachable
from morag.load.committers import NAMESPACE, committer
from morag.load.driver import Client, drive
from morag.load.request_bytes import (
    Branch,
    commit,
    create_branch,
    delete_branch,
    get_contents,
    put_namespace,
    put_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from morag.load.driver import Step, Steps
    from morag.load.target import Target

TABLES: Final = 256
DIFFERENT_KEYS: Final = 20

_KEYS_PER_NAMESPACE: Final = 100
_PUTS_PER_COMMIT: Final = 2_000
_SMALL_COMMITS: Final = 20
_LATE: Final = "late"
_CREATORS: Final = 8
_ATTEMPTS: Final = 10


class Sizes(Struct, frozen=True):
    keys: int = 30_000
    """Of the large branch. They are rounded to whole namespaces."""
    commits: int = 2_000
    """Of the branch with a long history."""
    references: int = 2_000


_USUAL: Final = Sizes()


class DataSet:
    """The data of one measurement on a server. `remove` deletes all its references."""

    def __init__(self, target: Target, prefix: str, sizes: Sizes = _USUAL) -> None:
        self.target = target
        self.prefix = prefix
        self._sizes = sizes
        self._numbers = count()

    def new_branch(self, part: str, at: Branch | None = None) -> Branch:
        """Create a branch at another one, or empty. Its name has a number, so it is always new."""
        name = f"{self.prefix}{part}-{next(self._numbers)}"
        hash = self._empty if at is None else at.hash
        self.target.ask(create_branch(self.target, name, hash))
        return Branch(name, hash)

    def commits_on(self, branch: Branch) -> int:
        found = self.target.ask(self.target.get(f"trees/{branch.name}?fetch=ALL"))
        return int(found["reference"]["metadata"]["numTotalCommits"])

    @property
    def table_names(self) -> list[str]:
        return [f"read-{number:03}" for number in range(TABLES)]

    @property
    def namespaces(self) -> list[str]:
        """The namespaces of the large branch."""
        spaces = max(1, self._sizes.keys // _KEYS_PER_NAMESPACE)
        return [f"space-{number:04}" for number in range(spaces)]

    def table_ids(self, branch: Branch, keys: Sequence[tuple[str, str]]) -> dict[str, str]:
        """The content ids of tables by name."""
        found = self.target.ask(get_contents(self.target, branch.name, keys))["contents"]
        return {".".join(each["key"]["elements"]): each["content"]["id"] for each in found}

    @cached_property
    def tables(self) -> Branch:
        """A small branch: one namespace with 256 tables."""
        branch = self.new_branch("tables")
        tables = (put_table((NAMESPACE, name), 1) for name in self.table_names)
        return self._commit(branch, [put_namespace(NAMESPACE), *tables])

    @cached_property
    def large(self) -> Branch:
        """A branch of many keys: namespaces of 99 tables each, and small commits after the bulk."""
        branch = self.new_branch("large")
        puts: list[object] = []
        for namespace in self.namespaces:
            puts.append(put_namespace(namespace))
            puts += [put_table(key, 1) for key in keys_of(namespace)]
        for start in range(0, len(puts), _PUTS_PER_COMMIT):
            branch = self._commit(branch, puts[start : start + _PUTS_PER_COMMIT])
        branch = self._commit(branch, [put_namespace(_LATE)])
        for number in range(_SMALL_COMMITS):
            branch = self._commit(branch, [put_table((_LATE, f"table-{number:02}"), 1)])
        return branch

    @cached_property
    def changed(self) -> Branch:
        """The large branch after a commit that changed a few tables."""
        keys = [key for namespace in self.namespaces for key in keys_of(namespace)]
        chosen = keys[:: len(keys) // DIFFERENT_KEYS][:DIFFERENT_KEYS]
        ids = self.table_ids(self.large, chosen)
        puts = [put_table(key, 2, ids[".".join(key)]) for key in chosen]
        return self._commit(self.new_branch("changed", self.large), puts)

    @cached_property
    def history(self) -> Branch:
        """A branch with a long history of small commits."""
        branch = self.new_branch("history", self.tables)
        self._run([committer(self.target, branch, 0, commits=self._sizes.commits)])
        return branch

    @cached_property
    def references(self) -> int:
        """Create many branches at the same commit, and return how many."""
        hash, references = self.tables.hash, self._sizes.references

        def creator(first: int) -> Steps:
            for number in range(first, references, _CREATORS):
                yield create_branch(self.target, f"{self.prefix}ref-{number:05}", hash), 1

        self._run(creator(first) for first in range(_CREATORS))
        return references

    def pages(self, path: str, items: str) -> list[Step]:
        """Walk a listing once: the request of each page, and the number of its items."""
        steps: list[Step] = []
        token: str | None = ""
        while token is not None:
            separator = "&" if "?" in path else "?"
            asked = f"{path}{separator}page-token={quote(token)}" if token else path
            request = self.target.get(asked)
            page = self.target.ask(request)
            steps.append((request, len(page[items])))
            token = page["token"] if page["hasMore"] else None
        return steps

    def remove(self) -> None:
        """Delete all references with the prefix.

        After an interrupt, the server may still execute a request, and move a branch meanwhile.
        """
        filter = quote(f"ref.name.startsWith('{self.prefix}')")
        for _ in range(_ATTEMPTS):
            found = self.target.ask(self.target.get(f"trees?filter={filter}"))["references"]
            if not found:
                return
            each = [delete_branch(self.target, ref["name"], ref["hash"]) for ref in found]
            shares = [share for first in range(_CREATORS) if (share := each[first::_CREATORS])]
            drive(self.target.address, [Client(_all_of(share)) for share in shares])
        raise ServerUnreachable("The server does not delete references")

    @cached_property
    def _empty(self) -> str:
        """The hash of the state before the first commit."""
        return str(self.target.ask(self.target.get("config"))["noAncestorHash"])

    def _commit(self, branch: Branch, puts: Sequence[object]) -> Branch:
        found = self.target.ask(commit(self.target, branch, "tables to read", puts))
        return Branch(branch.name, found["targetBranch"]["hash"])

    def _run(self, all_steps: Iterable[Steps]) -> None:
        outcome = drive(self.target.address, [Client(steps) for steps in all_steps])
        if outcome.failures:
            raise ServerUnreachable(f"The data set is incomplete: {outcome.shown_failures[0]}")


def keys_of(namespace: str) -> list[tuple[str, str]]:
    return [(namespace, f"table-{number:02}") for number in range(1, _KEYS_PER_NAMESPACE)]


def _all_of(requests: Iterable[bytes]) -> Steps:
    for request in requests:
        yield request, 1

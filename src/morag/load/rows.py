"""The rows: each is a kind of load, with its usual number of clients and its unit of work."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from msgspec import Struct

from morag.load.committers import (
    NAMESPACE,
    bring_back,
    committer,
    create_and_delete,
    many_puts,
    read_modify_write,
)
from morag.load.data_set import DIFFERENT_KEYS, TABLES, DataSet
from morag.load.driver import Client
from morag.load.requests import Branch, get_contents, merge, transplant

if TYPE_CHECKING:
    from morag.load.driver import Step, Steps

_REQUESTED_KEYS: Final = 50
_PUTS: Final = 50
_LOG_PAGE: Final = 250
_REFERENCES_PAGE: Final = 2_000


class Load(Struct, frozen=True):
    """The clients of a row, and the branches to which they commit."""

    clients: Sequence[Client]
    branches: Sequence[Branch] = ()


class Row(Struct, frozen=True):
    """A kind of load. `prepare` takes the data set and the number of clients."""

    name: str
    title: str
    unit: str
    clients: int
    prepare: Callable[[DataSet, int], Load]
    units_per_commit: int = 1


def _reading(steps: Sequence[Step], clients: int, count: Callable[[Any], int]) -> Load:
    """Each client repeats the same requests, but starts at another one."""

    def reader(first: int) -> Steps:
        for number in itertools.count(first):
            yield steps[number % len(steps)]

    starts = [number * len(steps) // clients for number in range(clients)]
    return Load([Client(reader(start), count) for start in starts])


def _one(_: Any) -> int:
    return 1


def _items(name: str) -> Callable[[Any], int]:
    return lambda page: len(page[name])


def _config(data: DataSet, clients: int) -> Load:
    return _reading([(data.target.get("config"), 1)], clients, _one)


def _reference(data: DataSet, clients: int) -> Load:
    return _reading([(data.target.get(f"trees/{data.tables.name}"), 1)], clients, _one)


def _content(data: DataSet, clients: int) -> Load:
    path = f"trees/{data.tables.name}/contents/{NAMESPACE}."
    steps = [(data.target.get(path + name), 1) for name in data.table_names]
    return _reading(steps, clients, _one)


def _contents(data: DataSet, clients: int) -> Load:
    names = data.table_names * 2
    steps: list[Step] = []
    for start in range(0, TABLES, 16):
        keys = [(NAMESPACE, name) for name in names[start : start + _REQUESTED_KEYS]]
        steps.append((get_contents(data.target, data.tables.name, keys), _REQUESTED_KEYS))
    return _reading(steps, clients, _items("contents"))


def _entries(data: DataSet, clients: int) -> Load:
    steps = data.pages(f"trees/{data.large.name}/entries", "entries")
    return _reading(steps, clients, _items("entries"))


def _prefix(data: DataSet, clients: int) -> Load:
    path = f"trees/{data.large.name}/entries?prefix-key="
    first = data.pages(path + data.namespaces[0], "entries")
    steps = [(data.target.get(path + name), first[0][1]) for name in data.namespaces]
    return _reading(steps, clients, _items("entries"))


def _filter(data: DataSet, clients: int) -> Load:
    filters = [quote(f"entry.namespace == '{name}'") for name in data.namespaces]
    path = f"trees/{data.large.name}/entries?filter="
    first = data.pages(path + filters[0], "entries")
    steps = [(data.target.get(path + filter), first[0][1]) for filter in filters]
    return _reading(steps, clients, _items("entries"))


def _log(data: DataSet, clients: int) -> Load:
    steps = data.pages(f"trees/{data.history.name}/history?max-records={_LOG_PAGE}", "logEntries")
    return _reading(steps, clients, _items("logEntries"))


def _references(data: DataSet, clients: int) -> Load:
    assert data.references
    steps = data.pages(f"trees?max-records={_REFERENCES_PAGE}", "references")
    return _reading(steps, clients, _items("references"))


def _diff(data: DataSet, clients: int) -> Load:
    request = data.target.get(f"trees/{data.large.name}/diff/{data.changed.name}")
    return _reading([(request, DIFFERENT_KEYS)], clients, _items("diffs"))


def _commit(data: DataSet, clients: int) -> Load:
    branch = data.new_branch(f"commit-{clients}", data.tables)
    steps = [committer(data.target, branch, number) for number in range(clients)]
    return Load([Client(each) for each in steps], [branch])


def _commit_branches(data: DataSet, clients: int) -> Load:
    branches = [data.new_branch(f"own-{number:02}", data.tables) for number in range(clients)]
    steps = [committer(data.target, branch, 0) for branch in branches]
    return Load([Client(each) for each in steps], branches)


def _commit_large(data: DataSet, clients: int) -> Load:
    branch = data.new_branch("commit-large", data.large)
    space = data.namespaces[len(data.namespaces) // 2]
    steps = [committer(data.target, branch, number, space) for number in range(clients)]
    return Load([Client(each) for each in steps], [branch])


def _read_modify_write(data: DataSet, clients: int) -> Load:
    branch = data.new_branch("read-modify-write", data.tables)
    names = itertools.islice(itertools.cycle(data.table_names), clients)
    return Load([Client(read_modify_write(data.target, branch, name)) for name in names], [branch])


def _puts(data: DataSet, clients: int) -> Load:
    branches = [data.new_branch(f"puts-{number:02}", data.tables) for number in range(clients)]
    return Load([Client(many_puts(data.target, each, _PUTS)) for each in branches], branches)


def _merge(data: DataSet, clients: int) -> Load:
    return _bring_back(data, clients, "merge", merge)


def _transplant(data: DataSet, clients: int) -> Load:
    return _bring_back(data, clients, "transplant", transplant)


def _bring_back(
    data: DataSet,
    clients: int,
    part: str,
    bring: Callable[[Any, Branch, Branch], bytes],
) -> Load:
    """Each client has a target branch of its own."""
    table = data.table_names[0]
    ids = data.table_ids(data.tables, [(NAMESPACE, table)])
    branches = [data.new_branch(f"{part}-{number:02}", data.tables) for number in range(clients)]
    cycles = [
        bring_back(data.target, branch, table, ids[f"{NAMESPACE}.{table}"], bring)
        for branch in branches
    ]
    return Load([Client(each) for each in cycles], branches)


def _create_delete(data: DataSet, clients: int) -> Load:
    names = [f"{data.prefix}new-{number:02}" for number in range(clients)]
    hash = data.tables.hash
    return Load([Client(create_and_delete(data.target, name, hash)) for name in names])


ROWS: Final = {
    row.name: row
    for row in (
        Row("config", "config", "request", 8, _config),
        Row("reference", "reference", "request", 8, _reference),
        Row("content", "content of a key", "request", 8, _content),
        Row("contents", "contents of 50 keys", "key", 8, _contents),
        Row("entries", "entries, all pages", "key", 1, _entries),
        Row("prefix", "entries by prefix", "key", 4, _prefix),
        Row("filter", "entries by filter", "key found", 4, _filter),
        Row("log", "log, pages of 250", "entry", 1, _log),
        Row("references", "references, pages of 2,000", "reference", 1, _references),
        Row("diff", "diff of large branches, 20 keys differ", "difference", 1, _diff),
        Row("commit", "commit, one client", "commit", 1, _commit),
        Row("commit-contended", "commit, 16 clients on one branch", "commit", 16, _commit),
        Row("commit-branches", "commit, 16 clients on 16 branches", "commit", 16, _commit_branches),
        Row("read-modify-write", "read, modify, write", "commit", 8, _read_modify_write),
        Row("puts", "50 puts per commit", "put", 1, _puts, units_per_commit=_PUTS),
        Row("commit-large", "commit on a large branch", "commit", 1, _commit_large),
        Row("merge", "branch, commit, merge, delete", "cycle", 1, _merge),
        Row("transplant", "branch, commit, transplant, delete", "cycle", 1, _transplant),
        Row("create-delete", "create and delete a reference", "cycle", 8, _create_delete),
    )
}

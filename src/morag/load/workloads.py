"""The workloads: each is a kind of load, with its usual number of clients and its unit of work."""

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
from morag.load.data_set import DIFFERENT_KEYS, DataSet, keys_of
from morag.load.driver import Client
from morag.load.request_bytes import Branch, get_contents, merge, transplant

if TYPE_CHECKING:
    from morag.load.driver import Step, Steps

_REQUESTED_KEYS: Final = 50
_PUTS: Final = 50
_LOG_PAGE: Final = 250
_REFERENCES_PAGE: Final = 2_000


class Load(Struct, frozen=True):
    """The clients of a workload, and the branches to which they commit."""

    clients: Sequence[Client]
    branches: Sequence[Branch] = ()


class Workload(Struct, frozen=True):
    """A kind of load. `prepare` takes the data set and the number of clients."""

    name: str
    title: str
    units: str
    """What its rate counts."""
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
    """Each request is for tables of one namespace."""
    steps: list[Step] = []
    for namespace in data.namespaces:
        keys = keys_of(namespace)[:_REQUESTED_KEYS]
        steps.append((get_contents(data.target, data.large.name, keys), _REQUESTED_KEYS))
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
    branch = data.new_branch("commit", data.tables)
    steps = [committer(data.target, branch, number) for number in range(clients)]
    return Load([Client(each) for each in steps], [branch])


def _commit_branches(data: DataSet, clients: int) -> Load:
    branches = [data.new_branch("own", data.tables) for _ in range(clients)]
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
    branches = [data.new_branch("puts", data.tables) for _ in range(clients)]
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
    branches = [data.new_branch(part, data.tables) for _ in range(clients)]
    cycles = [
        bring_back(data.target, branch, table, ids[f"{NAMESPACE}.{table}"], bring)
        for branch in branches
    ]
    return Load([Client(each) for each in cycles], branches)


def _create_delete(data: DataSet, clients: int) -> Load:
    names = [f"{data.prefix}new-{number:02}" for number in range(clients)]
    hash = data.tables.hash
    return Load([Client(create_and_delete(data.target, name, hash)) for name in names])


WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        Workload("config", "config", "requests", 8, _config),
        Workload("reference", "reference", "requests", 8, _reference),
        Workload("content", "content of a key", "requests", 8, _content),
        Workload("contents", "contents of 50 keys", "keys", 8, _contents),
        Workload("entries", "entries, all pages", "keys", 1, _entries),
        Workload("prefix", "entries by prefix", "keys", 4, _prefix),
        Workload("filter", "entries by filter", "keys found", 4, _filter),
        Workload("log", "log, pages of 250", "entries", 1, _log),
        Workload("references", "references, pages of 2,000", "references", 1, _references),
        Workload("diff", "diff of large branches", "differences", 1, _diff),
        Workload("commit", "commit", "commits", 1, _commit),
        Workload("commit-contended", "commit, all on one branch", "commits", 16, _commit),
        Workload("commit-branches", "commit, each on its branch", "commits", 16, _commit_branches),
        Workload("read-modify-write", "get a content, commit it", "commits", 8, _read_modify_write),
        Workload("puts", "50 puts per commit", "puts", 1, _puts, units_per_commit=_PUTS),
        Workload("commit-large", "commit on a large branch", "commits", 1, _commit_large),
        Workload("merge", "branch, commit, merge, delete", "cycles", 1, _merge),
        Workload("transplant", "branch, commit, transplant, delete", "cycles", 1, _transplant),
        Workload("create-delete", "create and delete a reference", "cycles", 8, _create_delete),
    )
}

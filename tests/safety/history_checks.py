"""Operations to commit, and checks of the history that results from them."""

from __future__ import annotations

import os
import sys
from collections import Counter
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from morag.errors import ReferenceNotFound
from morag.format.ids import NO_ANCESTOR
from morag.logic.consistency import Consistency
from morag.model.content import IcebergTable
from morag.model.keys import ContentKey
from morag.model.operations import Put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from morag.model.results import LogEntry
    from morag.versions.repository import Repository

T = TypeVar("T")

ROOT = Path(__file__).parents[2]


def child_environment() -> dict[str, str]:
    """An environment in which a child process imports the same modules as the test."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Run `work` in a daemon thread.

    An executor would wait for a stuck thread at exit, and the test would hang instead of failing.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as failure:  # noqa: BLE001 - The future raises it.
            future.set_exception(failure)

    Thread(target=run, daemon=True).start()
    return future


def in_threads(tasks: Iterable[Callable[[], T]], timeout_seconds: float = 60) -> list[T]:
    """Run all of them at the same time; return their results in order."""
    return [done.result(timeout_seconds) for done in [in_thread(work) for work in tasks]]


def key(name: str) -> ContentKey:
    return ContentKey.of(name)


def table(number: int = 0, id: str | None = None) -> IcebergTable:
    return IcebergTable(
        id=id,
        metadata_location=f"s3://lake/{number}.json",
        snapshot_id=number,
        schema_id=1,
        spec_id=2,
        sort_order_id=3,
    )


def put(name: str, number: int = 0, id: str | None = None) -> Put:
    return Put(key(name), table(number, id))


def log_of(repo: Repository, branch: str) -> list[LogEntry]:
    """The commits of a branch with their operations, oldest first."""
    return list(repo.history.log(branch, with_operations=True))[::-1]


def messages(repo: Repository, branch: str) -> list[str]:
    """The commit messages of a branch, oldest first."""
    return [entry.meta.message for entry in repo.history.log(branch)][::-1]


def check_linear(log: list[LogEntry]) -> None:
    """Each commit's parent is the one before it, and the first has none."""
    assert not log or log[0].parent == NO_ANCESTOR.hex()
    for before, after in pairwise(log):
        assert after.parent == before.meta.hash


def check_once(log: list[LogEntry], acknowledged: dict[str, str], tried: Iterable[str]) -> None:
    """Each acknowledged commit is in the log once, under its hash; others at most once.

    Commits are identified by their messages. A commit that was never tried is not in the log.
    """
    found = Counter(entry.meta.message for entry in log)
    assert not [message for message, times in found.items() if times > 1]
    assert not set(found) - set(tried)
    hashes = {entry.meta.message: entry.meta.hash for entry in log}
    assert {message: hashes.get(message) for message in acknowledged} == acknowledged


def check_whole(repo: Repository, log: list[LogEntry], newest: int | None = None) -> None:
    """All objects of every commit, or of the `newest` commits only, are in the store."""
    for entry in log if newest is None else log[-newest:]:
        status = repo.history.check(f"@{entry.meta.hash}")
        assert status.consistency is Consistency.COMMIT_CONSISTENT, status.findings


def check_readable(repo: Repository, branch: str) -> None:
    listed = list(repo.contents.entries(branch))
    keys = [entry.key for entry in listed]
    assert list(repo.contents.get_all(branch, keys)) == keys


def check_acknowledged(
    repo: Repository, acknowledged: dict[str, str], tried: Iterable[str], newest: int
) -> list[LogEntry]:
    """All checks of this module on `main`, but only the `newest` commits are read completely."""
    log = log_of(repo, "main")
    check_linear(log)
    check_once(log, acknowledged, tried)
    check_whole(repo, log, newest)
    check_readable(repo, "main")
    return log


def check_sound(repo: Repository, branch: str) -> list[LogEntry]:
    """No commit of the branch is incomplete. Return its log, oldest first."""
    log = log_of(repo, branch)
    check_linear(log)
    check_whole(repo, log)
    check_readable(repo, branch)
    return log


def found_names(repo: Repository, names: Iterable[str]) -> set[str]:
    """The names that exist. Listing all and getting each one must agree."""
    found = set()
    for name in names:
        try:
            repo.references.get(name)
        except ReferenceNotFound:
            continue
        found.add(name)
    listed = {reference.name for reference in repo.references.list()}
    assert listed & set(names) == found
    assert {reference.name for reference in repo.references.list()} == listed
    return found

"""What the tests of this folder share: things to commit, and the look at what became of them."""

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
from morag.logic.consistency import Consistency
from morag.model.content import IcebergTable
from morag.model.keys import ContentKey
from morag.model.operations import Put
from morag.persist.ids import NO_ANCESTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from morag.model.listed import LogEntry
    from morag.versions.repository import Repository

T = TypeVar("T")

ROOT = Path(__file__).parents[2]


def child_environment() -> dict[str, str]:
    """So that a child process imports what the test imports."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Start a thread that nobody waits for at the end, as an executor does.

    If it never comes back, the test shall fail and not hang.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as failure:  # noqa: BLE001 - for whoever asks for the result.
            future.set_exception(failure)

    Thread(target=run, daemon=True).start()
    return future


def in_threads(works: Iterable[Callable[[], T]], timeout_seconds: float = 60) -> list[T]:
    """Do all of it at once."""
    return [done.result(timeout_seconds) for done in [in_thread(work) for work in works]]


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
    """Oldest first, with operations."""
    return list(repo.history.log(branch, with_operations=True))[::-1]


def messages(repo: Repository, branch: str) -> list[str]:
    """Oldest first."""
    return [entry.meta.message for entry in repo.history.log(branch)][::-1]


def check_linear(log: list[LogEntry]) -> None:
    """Each commit's parent is the one before it, and the first has none."""
    assert not log or log[0].parent == NO_ANCESTOR.hex()
    for before, after in pairwise(log):
        assert after.parent == before.meta.hash


def check_once(log: list[LogEntry], acknowledged: dict[str, str], tried: Iterable[str]) -> None:
    """By message: what was acknowledged is there once, under its hash; anything else at most once.

    Nothing is there that nobody tried.
    """
    found = Counter(entry.meta.message for entry in log)
    assert not [message for message, times in found.items() if times > 1]
    assert not set(found) - set(tried)
    hashes = {entry.meta.message: entry.meta.hash for entry in log}
    assert {message: hashes.get(message) for message in acknowledged} == acknowledged


def check_whole(repo: Repository, log: list[LogEntry], newest: int | None = None) -> None:
    """Every commit of the log, or only the newest, has everything that it needs in the store."""
    for entry in log if newest is None else log[-newest:]:
        status = repo.history.check(f"@{entry.meta.hash}")
        assert status.consistency is Consistency.COMMIT_CONSISTENT, status.findings


def check_readable(repo: Repository, branch: str) -> None:
    listed = list(repo.contents.entries(branch))
    keys = [entry.key for entry in listed]
    assert list(repo.contents.get_all(branch, keys)) == keys


def check_sound(repo: Repository, branch: str) -> list[LogEntry]:
    """Nothing on the branch is half done. Returns its log, oldest first."""
    log = log_of(repo, branch)
    check_linear(log)
    check_whole(repo, log)
    check_readable(repo, branch)
    return log


def found_names(repo: Repository, names: Iterable[str]) -> set[str]:
    """Which of the names exist. Listing and asking for each one must agree on it."""
    there = set()
    for name in names:
        try:
            repo.references.get(name)
        except ReferenceNotFound:
            continue
        there.add(name)
    listed = {reference.name for reference in repo.references.list()}
    assert listed & set(names) == there
    assert {reference.name for reference in repo.references.list()} == listed
    return there

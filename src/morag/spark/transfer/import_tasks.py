"""The work of an import on executors. Nothing here imports Spark."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from morag.config import Settings
from morag.errors import ArchiveInvalid
from morag.format.carried_rows import row_of_related
from morag.format.export_messages import RELATED_OBJ, read_message
from morag.persist.cache import ObjectCache
from morag.persist.fitting import fitted_settings
from morag.persist.persist import Persist
from morag.spark.driver_link import DriverAddress
from morag.spark.object_batches import ObjectBatches
from morag.spark.opening import Origin, opened_backend
from morag.spark.transfer.index_completion import (
    Checkpoint,
    checkpoints_of,
    completed_checkpoint,
    completed_group,
)
from morag.spark.transfer.message_places import DataFiles
from morag.versions.transfer.imported_commits import read_commit
from morag.versions.transfer.importing import StoredHistory
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from morag.backend.base import Backend
    from morag.format.export_messages import ExportedCommit
    from morag.format.records import ObjId
    from morag.spark.transfer.line_groups import Group, GroupLine
    from morag.versions.transfer.imported_commits import ImportedCommit

_FOUND_AT_ONCE: Final = 500
_SHOWN_IDS: Final = 20

Place: TypeAlias = tuple[int, int]
"""The tree and the number of the line that ends with a checkpoint."""


class ImportJob(Struct, frozen=True):
    """The parameters of all tasks. Without a `driver`, executors write to the store."""

    origin: Origin
    settings: Settings
    files: DataFiles
    driver: DriverAddress | None
    resume: bool
    strict: bool


def store_objects(job: ImportJob, names: Iterable[str]) -> Iterator[StoredHistory]:
    """Store the claims and custom objects of data files."""
    with _opened(job) as (persist, batches):
        for name in names:
            count = 0
            for message in job.files.messages_of(name):
                related = read_message(RELATED_OBJ, message, f"An object in '{name}'")
                batches.add_row(row_of_related(related, persist.now_micros()))
                count += 1
            batches.flush()
            yield StoredHistory(objects=count)


def prepare_checkpoints(
    job: ImportJob, groups: Iterable[Group]
) -> Iterator[tuple[Place, Checkpoint]]:
    """Read what the checkpoints of the groups need. The store is not opened."""
    parents = job.settings.parents_per_commit
    for group in groups:
        if group.has_checkpoints:
            messages = _messages(job, group)
            for line, checkpoint in checkpoints_of(group, messages, job.files.version, parents):
                yield (group.tree, line), checkpoint


def store_checkpoints(
    job: ImportJob, checkpoints: Iterable[tuple[Place, Checkpoint]]
) -> Iterator[StoredHistory]:
    """Complete checkpoints, which come after those that they build on, and store them."""
    counts = _Counts(job)
    with _opened(job) as (persist, batches):
        for _, checkpoint in checkpoints:
            if job.resume and persist.find([checkpoint.commit.id]):
                counts.add_found([checkpoint.commit])
                continue
            found = completed_checkpoint(persist, checkpoint)
            counts.add(found)
            batches.add([*found.objects, found.commit])
            batches.flush()  # The next one reads it.
    yield counts.sum()


def store_groups(job: ImportJob, groups: Iterable[Group]) -> Iterator[StoredHistory]:
    """Complete the commits of groups, whose checkpoints are stored, and store them."""
    counts = _Counts(job)
    with _opened(job) as (persist, batches):
        for group in groups:
            messages = _messages(job, group)
            if job.resume and _is_stored(job, persist, group, messages, counts):
                continue
            for found in completed_group(persist, group, messages, job.files.version):
                counts.add(found)
                batches.add([*found.objects, found.commit])
            batches.flush()
    yield counts.sum()


class _Counts:
    """Counts what a task stores."""

    def __init__(self, job: ImportJob) -> None:
        self._is_strict = job.strict
        self._commits = self._found = self._newest_micros = 0
        self._unfit: list[ObjId] = []

    def add(self, found: ImportedCommit) -> None:
        commit = found.commit
        self._commits += 1
        self._newest_micros = max(self._newest_micros, commit.created_micros)
        if not found.fits:
            if self._is_strict:
                raise ArchiveInvalid(
                    f"The id of commit {commit.id.hex()} does not follow from its content; "
                    "import without --check=strict to keep it as it is"
                )
            self._unfit.append(commit.id)

    def add_found(self, commits: Sequence[ExportedCommit]) -> None:
        """Commits that an interrupted import had stored."""
        self._commits += len(commits)
        self._found += len(commits)
        newest = max((commit.created_micros for commit in commits), default=0)
        self._newest_micros = max(self._newest_micros, newest)

    def sum(self) -> StoredHistory:
        return StoredHistory(
            commits=self._commits,
            found=self._found,
            unfit=len(self._unfit),
            unfit_ids=tuple(self._unfit[:_SHOWN_IDS]),
            newest_micros=self._newest_micros,
        )


@contextmanager
def _opened(job: ImportJob) -> Iterator[tuple[Persist, ObjectBatches]]:
    if job.driver is None:
        with opened_backend(job.origin, write=True) as backend:
            yield _on(job, backend)
        return
    link = job.driver.connect()
    try:
        yield _on(job, link)
    finally:
        link.close()


def _on(job: ImportJob, backend: Backend) -> tuple[Persist, ObjectBatches]:
    settings = fitted_settings(job.settings, backend)
    cache = ObjectCache(settings.cache_bytes)
    # Ids are verified here, and not when a commit is read again.
    persist = Persist(backend, cache, settings, World().clock_nanos)
    return persist, ObjectBatches(backend, persist, cache)


def _messages(job: ImportJob, group: Group) -> Callable[[GroupLine], Sequence[bytes]]:
    """The messages of the group's lines, which are read together: they are near each other."""
    places = group.all_places()
    found = dict(zip(places, job.files.messages(places), strict=True))
    return lambda line: [found[place] for place in line.places]


def _is_stored(
    job: ImportJob,
    persist: Persist,
    group: Group,
    messages: Callable[[GroupLine], Sequence[bytes]],
    counts: _Counts,
) -> bool:
    """Whether all commits of the group are stored, and hence everything that they need."""
    commits = []
    for line in group.lines:
        own = messages(line)
        own = own[:-1] if line.is_checkpoint else own
        commits += [read_commit(message, job.files.version) for message in own]
    for at in range(0, len(commits), _FOUND_AT_ONCE):
        ids = [commit.id for commit in commits[at : at + _FOUND_AT_ONCE]]
        if len(persist.find(ids)) < len(ids):
            return False
    counts.add_found(commits)
    return True

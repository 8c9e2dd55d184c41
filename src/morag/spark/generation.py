"""The content generator on Spark: random histories straight into a store, without a server.

The executors build the branches side by side and store their objects. The driver creates the
references at the end: an interrupted job leaves objects that nothing refers to, and no reference.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from morag.config import Settings
from morag.errors import ReferenceAlreadyExists, ReferenceNotFound
from morag.format.records import ObjId
from morag.generate.generate_options import GenerateOptions
from morag.logic.history import head_commit
from morag.logic.refutation import refutes
from morag.model.names import NO_ANCESTOR_HASH
from morag.model.refspecs import RefSpec
from morag.persist.cache import ObjectCache
from morag.persist.fitting import fitted_settings
from morag.persist.persist import Persist
from morag.spark.driver_link import (
    DriverAddress,
    DriverListener,
    are_executors_local,
    check_writable,
)
from morag.spark.executors import map_items, task_count
from morag.spark.generated_branch import (
    GeneratedBranch,
    GenerationClock,
    bulk_settings,
    generated_keys,
)
from morag.spark.object_batches import ObjectBatches
from morag.spark.opening import Origin, opened_backend
from morag.spark.progress import Pace, watched
from morag.spark.transfer.stores import settings_of, store_url
from morag.versions.repository import Repository
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from morag.backend.base import Backend
    from morag.model.references import Reference
    from morag.spark.progress import ProgressCallback

_CACHE_BYTES: Final = 256 * 1024 * 1024
_TAG_THREADS: Final = 32
"""Tags that are created at the same time are written together."""
_REPORT_COMMITS: Final = 100
_POLL_SECONDS: Final = 0.5
_REAL: Final = World()


class Generated(Struct, frozen=True):
    """The result of a job."""

    seconds: float
    commits: int
    commits_per_second: float
    puts: int
    """Of tables and views: those of their namespaces are not counted."""
    puts_per_second: float
    rows: int
    bytes: int
    branches: dict[str, str]
    """Their names and heads."""
    tags: int
    task_cpu_seconds: float
    """CPU time of the tasks, without that of Spark and of a database."""


class _Branch(Struct, frozen=True):
    """The work of one branch. Its commits have the numbers from `first` on, in steps of `step`."""

    name: str
    first: int
    step: int


class _Built(Struct, frozen=True):
    name: str
    head: str
    commits: int
    puts: int
    rows: int
    bytes: int
    tags: list[tuple[str, str]]
    cpu_seconds: float


class _Job(Struct, frozen=True):
    """The parameters of all tasks."""

    origin: Origin
    options: GenerateOptions
    start_nanos: int
    base: ObjId
    settings: Settings
    driver: DriverAddress | None
    writes_through_driver: bool


def generate(
    spark: SparkSession,
    origin: Origin,
    options: GenerateOptions,
    *,
    start_nanos: int | None = None,
    progress: ProgressCallback | None = None,
    world: World = _REAL,
) -> Generated:
    """Generate a history in a store.

    Branches take turns with the commits. The commit with number n has the time `start_nanos` plus n
    milliseconds, by default now. The same options, start time and head of the default branch give
    the same commit ids, however many tasks there are.
    """
    url = store_url(origin)
    generated_keys(options)  # Refuses wrong keys before anything starts.
    start_nanos = world.clock_nanos() if start_nanos is None else start_nanos
    check_writable(spark, url)
    began = world.monotonic()
    with ExitStack() as stack:
        backend = stack.enter_context(opened_backend(origin, write=True))
        settings = settings_of(origin)
        repository = Repository(backend, settings, world)
        default = _default_branch(repository, options)
        _refuse_existing(repository, options)
        link = stack.enter_context(DriverListener(backend)) if are_executors_local(spark) else None
        job = _Job(
            origin=origin,
            options=options,
            start_nanos=start_nanos,
            base=repository.resolve(RefSpec(default.name)).id,
            settings=bulk_settings(settings, options),
            driver=None if link is None else link.address,
            writes_through_driver=url.traits.private,
        )
        names = [default.name or "", *options.new_branches()]
        branches = [_Branch(name, first, len(names)) for first, name in enumerate(names)]
        # On a cluster, branches are counted instead of commits.
        by_task = progress if link is None else None
        with watched(spark, "generate", by_task), _reported(link, options.commits, progress):
            tasks = min(len(branches), task_count(spark))
            built: list[_Built] = map_items(spark, branches, partial(_build, job), tasks)
        _publish(repository, default, built)
    seconds = world.monotonic() - began
    commits, puts = (sum(getattr(each, name) for each in built) for name in ("commits", "puts"))
    return Generated(
        seconds=seconds,
        commits=commits,
        commits_per_second=commits / seconds,
        puts=puts,
        puts_per_second=puts / seconds,
        rows=sum(each.rows for each in built),
        bytes=sum(each.bytes for each in built),
        branches={each.name: each.head for each in built},
        tags=sum(len(each.tags) for each in built),
        task_cpu_seconds=sum(each.cpu_seconds for each in built),
    )


def _default_branch(repository: Repository, options: GenerateOptions) -> Reference:
    default = repository.references.get(repository.default_branch)
    name = options.default_branch
    if name is None or name == default.name:
        return default
    try:
        return repository.references.get(name)
    except ReferenceNotFound:
        return repository.references.create_branch(name, RefSpec(default.name, default.hash))


def _refuse_existing(repository: Repository, options: GenerateOptions) -> None:
    """Before the work begins: the branches are created at its end."""
    for name in options.new_branches():
        try:
            repository.references.get(name)
        except ReferenceNotFound:
            continue
        raise ReferenceAlreadyExists(
            f"Branch '{name}' exists: an earlier run created it. Choose another seed, or delete it"
        )


def _build(job: _Job, branches: Iterator[_Branch]) -> Iterator[_Built]:
    """Build branches in a task. Their objects are stored when it ends."""
    with ExitStack() as stack:
        link = None if job.driver is None else job.driver.connect()
        if link is not None:
            stack.callback(link.close)
        backend: Backend
        if job.writes_through_driver:
            assert link is not None, "a private store needs the driver"
            backend = link
        else:
            backend = stack.enter_context(opened_backend(job.origin, write=True))
        settings = fitted_settings(job.settings, backend)
        cpu_seconds = World().cpu_seconds
        for branch in branches:
            began = cpu_seconds()
            clock = GenerationClock(job.start_nanos)
            cache = ObjectCache(_CACHE_BYTES)
            persist = Persist(backend, cache, settings, clock, refutes)
            batches = ObjectBatches(backend, persist, cache)
            head = head_commit(persist, job.base)
            history = GeneratedBranch(persist, clock, job.options, branch.name, head)
            numbers = range(branch.first, job.options.commits, branch.step)
            unreported = 0
            for number in numbers:
                batches.add(history.commit(number))
                unreported += 1
                if link is not None and unreported == _REPORT_COMMITS:
                    link.count(unreported)
                    unreported = 0
            batches.flush()
            if link is not None:
                link.count(unreported)
            yield _Built(
                branch.name,
                NO_ANCESTOR_HASH if history.head is None else history.head.id.hex(),
                len(numbers),
                history.puts,
                batches.rows,
                batches.bytes,
                history.tags,
                cpu_seconds() - began,
            )


@contextmanager
def _reported(
    link: DriverListener | None, commits: int, progress: ProgressCallback | None
) -> Iterator[None]:
    """Report the commits that executors on this machine have counted."""
    if link is None or progress is None:
        yield
        return
    over, pace = Event(), Pace("generate")

    def report() -> None:
        while not over.wait(_POLL_SECONDS):
            progress(pace.at(link.units, commits))
        progress(pace.at(link.units, commits))

    thread = Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _publish(repository: Repository, default: Reference, built: Sequence[_Built]) -> None:
    """Create the references; the branch that existed before moves last."""
    for each in built:
        if each.name != default.name:
            at = None if each.head == NO_ANCESTOR_HASH else RefSpec(hash=each.head)
            repository.references.create_branch(each.name, at)
    tags = [tag for each in built for tag in each.tags]
    with ThreadPoolExecutor(_TAG_THREADS) as threads:
        for _ in threads.map(lambda tag: _create_tag(repository, *tag), tags):
            pass
    for each in built:
        if each.name == default.name and each.head != default.hash:
            repository.references.assign(each.name, RefSpec(hash=each.head), default.hash)


def _create_tag(repository: Repository, name: str, hash: str) -> Any:
    return repository.references.create_tag(name, RefSpec(hash=hash))

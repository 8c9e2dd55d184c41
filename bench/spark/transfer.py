"""Export and import of a whole history on Spark, and the same commits through REST.

    python -m bench.spark.transfer export [--commits 100000] [--stores SQLite PostgreSQL RocksDB]
    python -m bench.spark.transfer import [--commits 100000] [--rest-commits 3000]

Each commit puts one of 10,000 tables, chosen at random. A smaller history warms Java and its
workers up. Databases sync what they acknowledge, and PostgreSQL needs CPU time of the same machine.
REST is one client that commits in a loop; its time per commit is taken for all of them.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from argparse import ArgumentParser
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Final

import morag
from bench.report import show
from bench.stores import STORES
from bench.workload import table
from morag import ContentKey, Namespace, Put
from morag.client import Client
from morag.spark import session
from morag.spark.opening import Origin
from morag.spark.transfer import export_repository, import_repository
from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from bench.report import Row

EXPORT_BAR: Final = 20_000
"""Commits per second."""
IMPORT_BAR: Final = 10.0
"""Times the rate through REST."""
_BARRED: Final = ("SQLite", "PostgreSQL")
_STORES: Final = (*_BARRED, "RocksDB")
_TABLES: Final = 10_000
_NAMESPACES: Final = 100
_WARM_COMMITS: Final = 4_000
_REST_WARM_COMMITS: Final = 300
_RUNS: Final = 3


def export_main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser("export")
    given = parser.parse_args(arguments)
    with _prepared(given.commits) as bench:
        rows = [bench.export_row(store) for store in given.stores]
    return _shown("export", given.commits, rows)


def import_main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser("import")
    parser.add_argument("--rest-commits", type=int, default=3_000)
    given = parser.parse_args(arguments)
    with _prepared(given.commits) as bench:
        rows = [bench.import_row(store, given.rest_commits) for store in given.stores]
    return _shown("import", given.commits, rows)


def _parser(part: str) -> ArgumentParser:
    parser = ArgumentParser(prog=f"bench.spark.transfer {part}")
    parser.add_argument("--commits", type=int, default=100_000)
    parser.add_argument("--stores", nargs="*", choices=_STORES, default=_STORES)
    return parser


def _shown(part: str, commits: int, rows: list[Row]) -> int:
    print(f"{part} of {commits:,} commits of one put each, {_TABLES:,} tables, local[2]")
    show(rows)
    return 0 if all(passed for _, _, _, passed in rows) else 1


@contextmanager
def _prepared(commits: int) -> Iterator[_Bench]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        conf = {
            "spark.driver.memory": "1g",
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": str(directory / "local"),
        }
        spark = session(master="local[2]", conf=conf)
        stack.callback(spark.stop)
        yield _Bench(spark, directory, commits)


class _Bench:
    def __init__(self, spark: SparkSession, directory: Path, commits: int) -> None:
        self._spark = spark
        self._directory = directory
        self._commits = commits
        for name, count in (("warm", _WARM_COMMITS), ("source", commits)):
            _make_history(f"sqlite:{directory / name}.db?sync=off", count)
            self._export(f"sqlite:{directory / name}.db", directory / name)

    def export_row(self, store: str) -> Row:
        with self._empty(store) as url:
            self._import(url, self._directory / "source")
            seconds = [self._export_again(url) for _ in range(_RUNS)]
        best = self._commits / min(seconds)
        return (
            f"export from {store}",
            f"{best:,.0f} commits/s ({_listed(seconds)} s), {_memory()}",
            f"≥ {EXPORT_BAR:,}" if store in _BARRED else "",
            store not in _BARRED or best >= EXPORT_BAR,
        )

    def import_row(self, store: str, rest_commits: int) -> Row:
        with self._empty(store) as url:
            self._import(url, self._directory / "warm")
        before = _memory()
        with self._empty(store) as url:
            seconds = self._import(url, self._directory / "source")
        after = _memory()
        with self._empty(store) as url:
            rest = _rest_rate(self._directory, url, rest_commits)
        rate = self._commits / seconds
        return (
            f"import into {store}, against REST",
            f"{rate:,.0f} commits/s, against {rest:,.0f}: × {rate / rest:.1f}, {after} "
            f"(after {_WARM_COMMITS:,} commits {before})",
            f"≥ × {IMPORT_BAR:g}" if store in _BARRED else "",
            store not in _BARRED or rate >= IMPORT_BAR * rest,
        )

    @contextmanager
    def _empty(self, store: str) -> Iterator[str]:
        with (
            tempfile.TemporaryDirectory(dir=self._directory) as name,
            STORES[store](Path(name)) as url,
        ):
            yield url

    def _export(self, url: str, path: Path) -> float:
        return _seconds(lambda: export_repository(self._spark, Origin(store=url), str(path)))

    def _export_again(self, url: str) -> float:
        path = self._directory / "again"
        try:
            return self._export(url, path)
        finally:
            shutil.rmtree(path)

    def _import(self, url: str, path: Path) -> float:
        return _seconds(lambda: import_repository(self._spark, Origin(store=url), str(path)))


def _make_history(url: str, commits: int) -> None:
    with morag.open(url) as repo:
        for operations, message in _changes(commits):
            added = repo.commit("main", operations, message).added
            _IDS.update(added)


def _rest_rate(directory: Path, url: str, commits: int) -> float:
    """Commits per second of one client in a loop, when all tables are there."""
    with Served(directory, store=url) as served, Client(served.url) as client:
        _IDS.clear()
        puts = [put for operations, _ in _changes(_TABLES + 1) for put in operations]
        for start in range(0, len(puts), 1000):
            _IDS.update(client.commit("main", puts[start : start + 1000], "tables").added)
        random = Random(1)
        updates = [_update(random) for _ in range(_REST_WARM_COMMITS + commits)]
        for put in updates[:_REST_WARM_COMMITS]:
            client.commit("main", [put], "warm")
        measured = updates[_REST_WARM_COMMITS:]
        return commits / _seconds(
            lambda: [client.commit("main", [put], "update") for put in measured]
        )


_IDS: Final[dict[ContentKey, str]] = {}
"""The ids of the tables in the catalog that is being filled."""


def _changes(commits: int) -> Iterator[tuple[list[Put], str]]:
    """The namespaces, then each table, then random updates: one commit each."""
    random = Random(commits)
    names = [f"db{n:02}" for n in range(_NAMESPACES)]
    yield [Put(ContentKey.of(name), Namespace.of(name)) for name in names], "namespaces"
    _IDS.clear()
    for number in range(1, commits):
        if number <= _TABLES:
            yield [Put(_key(number - 1), table(number))], f"create {number}"
        else:
            yield [_update(random)], f"update {number}"


def _update(random: Random) -> Put:
    key = _key(random.randrange(_TABLES))
    return Put(key, table(random.getrandbits(40), _IDS[key]))


def _key(number: int) -> ContentKey:
    return ContentKey.of(f"db{number % _NAMESPACES:02}", f"table_{number:07}")


def _memory() -> str:
    """The most memory that the driver's Python had."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found, "no VmHWM in /proc/self/status"
    return f"driver {int(found[1]) // 1024} MB"


def _listed(seconds: Sequence[float]) -> str:
    return ", ".join(f"{each:.1f}" for each in seconds)


def _seconds(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


if __name__ == "__main__":
    part, *options = sys.argv[1:]
    sys.exit({"export": export_main, "import": import_main}[part](options))

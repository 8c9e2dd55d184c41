"""Rules about the source code that no linter checks."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "morag"
FILES = sorted(SOURCE.rglob("*.py"))
MOST_LINES = 420

OUTSIDE = {
    *("os", "random", "secrets", "time", "uuid.uuid4"),
    "urllib.request.getproxies_environment",
}
"""Modules that read the clock, random numbers or the environment."""

ALLOWED = {
    "backend/store_files.py": {"os"},  # Files on disks.
    "backend/rocksdb/backend.py": {"os"},  # To notice a fork.
    "backend/rocksdb/log_damage.py": {"os"},
    "backend/rocksdb/open_files.py": {"time"},  # To list files at most once a second.
    "backend/rocksdb/synced_note.py": {"os"},
    "backend/sqlite/shared_memory.py": {"os"},
    "backend/*/calls.py": {"random", "time"},  # Pauses before retries.
    "spark/gc/lock.py": {"os"},  # The id of the process that holds the lock.
    "spark/files.py": {"os"},  # Files on disks.
    "spark/locations.py": {"os"},
    "client/connections.py": {"os", "urllib.request.getproxies_environment"},  # Forks, proxies.
    "spark/java.py": {"os"},  # JAVA_HOME for Spark.
    "spark/session.py": {"os"},  # The Python of the executors.
    "spark/copy.py": {"time"},  # Pauses, and the time of rows that executors write.
    "spark/gc/record_files.py": {"os"},  # Whether Hadoop is configured.
    "spark/purge.py": {"uuid.uuid4"},  # Names of files that no other task uses.
    "spark/transfer/export_files.py": {"os", "uuid.uuid4"},
    "spark/transfer/parquet_files.py": {"uuid.uuid4"},
    "config_sources.py": {"os"},  # Settings from the environment.
    "cli/spark_flags.py": {"time"},  # Progress lines, not too many.
    "cli/spark_transfer.py": {"time"},  # Rates.
    "cli/transfer_flags.py": {"time"},
    "versions/transfer/archive_writing.py": {"os"},  # Files on disks.
    "generate/*.py": {"random"},  # Sources that start with a seed.
    "generate/simulations/*.py": {"random"},
    "spark/generated_branch.py": {"random"},
    "load/driver.py": {"time"},  # It measures.
    "load/playing.py": {"time", "uuid.uuid4"},  # A pause, and a prefix that nobody else uses.
    "versions/world.py": {"os", "random", "time", "uuid.uuid4"},
}

ENGINES = sorted(
    path.parent for path in SOURCE.glob("backend/*/__init__.py") if path.parent.name != "sql"
)
NO_DRIVERS = {*sys.stdlib_module_names, "morag", "msgspec"} - {"sqlite3"}
WITH_OWN_FILES = {
    "temporary_database.py",  # Sets and orders that may be larger than memory.
    "versions/maintenance/journal.py",  # The rows that a purge deletes.
}
"""Modules that use SQLite for files of their own, not as a store."""


REPEATED = {
    "backend": "the class Backend of each engine, and the methods that SQL engines share",
    "calls": "calls of an engine's driver, with retries",
    "changes": "commits, merges and transplants: endpoints of both API versions, their service",
    "config": "the configuration of a server: its settings, and the endpoints that show it",
    "configs": "configurations of a repository, on each layer",
    "contents": "contents of keys: endpoints of both API versions, their service, the client",
    "diff": "differences between commits: of indexes, and as a table of Spark",
    "entries": "the entries of a commit, and the same as a table of Spark",
    "errors": "the errors of a layer, or how an engine's errors become Morag's",
    "exporting": "the export of a repository, in one process and on Spark",
    "history": "the history of commits, in the store and on a server",
    "importing": "the import of a repository: its command, in one process, and on Spark",
    "keys": "content keys, and the store keys that they become",
    "listing": "the class Listing, of a repository and of a server",
    "listings": "listings: endpoints of both API versions, their service",
    "log": "the commit log, and the same as a table of Spark",
    "namespaces": "namespaces, on each layer",
    "objects": "stored objects, and the same as a table of Spark",
    "opening": "how a store of each engine is opened, and how a job of Spark opens its catalog",
    "operations": "the operations of a commit, and how rows of Spark become them",
    "parameters": "the query parameters of both API versions",
    "purge": "the purge of a store, in one process and on Spark",
    "records": "refs and rows, and their form in each engine",
    "references": "branches and tags, on each layer",
    "reflog": "the ref-log, and the same as a table of Spark",
    "repository": "the repository as stored, and as the API of the kernel",
    "statements": "the statements of an engine, and those that SQL engines share",
    "write_ahead_log": "the write-ahead log of each embedded engine",
}
"""Module names that may exist more than once, because they mean the same everywhere, and what."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_listed_modules_read_the_clock_or_the_environment(path: Path) -> None:
    allowed: set[str] = set()
    for pattern, modules in ALLOWED.items():
        if path.relative_to(SOURCE).match(pattern):
            allowed |= modules
    assert _imported(path) & OUTSIDE <= allowed


@pytest.mark.parametrize("engine", ENGINES, ids=lambda path: str(path.name))
def test_only_an_engine_imports_its_driver(engine: Path) -> None:
    inside = {path for path in FILES if path.is_relative_to(engine)}
    drivers = set().union(*map(_packages, inside)) - NO_DRIVERS
    own_files = {SOURCE / name for name in WITH_OWN_FILES} if engine.name == "sqlite" else set()
    others = set().union(*map(_packages, {*FILES} - inside - own_files))
    assert drivers
    assert not drivers & others


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_has_a_docstring_of_whole_sentences(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring
    assert "." in docstring


def test_a_file_is_small_enough_to_hold_one_idea() -> None:
    lines = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in FILES}
    long = {name: count for name, count in lines.items() if count > MOST_LINES}
    assert not long.keys() - {"testing/backend_contract.py"}, long


def test_a_module_name_has_one_meaning() -> None:
    """A new module gets a name of its own, or the meaning that REPEATED gives to its name."""
    counts = Counter(path.stem for path in FILES if path.stem not in ("__init__", "__main__"))
    repeated = {name for name, count in counts.items() if count > 1}
    assert repeated == REPEATED.keys()


def _imported(path: Path) -> set[str]:
    """The run-time imports of a file: top-level modules (`os`), and names (`uuid.uuid4`)."""
    found: set[str] = set()
    for statement in _run_time_statements(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            found.add(statement.module.partition(".")[0])
            found |= {f"{statement.module}.{alias.name}" for alias in statement.names}
    return found


def _packages(path: Path) -> set[str]:
    return {name for name in _imported(path) if "." not in name}


def _run_time_statements(tree: ast.Module) -> list[ast.stmt]:
    """All statements except those under `if TYPE_CHECKING`."""
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and id(node) not in typing_only
    ]

"""Rules about the source itself that no linter knows."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "morag"
FILES = sorted(SOURCE.rglob("*.py"))

OUTSIDE = {"os", "random", "secrets", "time", "uuid.uuid4"}
"""Modules by which the outside world comes in: time, chance, environment."""

MAY_LOOK_OUTSIDE = {
    "backend/rocksdb.py": {"os"},  # To notice a fork.
    "backend/lost_files.py": {"os"},  # Files on disks.
    "backend/rocksdb_damage.py": {"os"},
    "backend/rocksdb_files.py": {"time"},  # How often to list them.
    "backend/rocksdb_synced.py": {"os"},
    "backend/sqlite_shared.py": {"os"},
    "backend/bigtable_calls.py": {"random", "time"},  # How long to wait before a retry.
    "backend/cassandra_session.py": {"random", "time"},
    "backend/dynamodb_calls.py": {"random", "time"},
    "spark/gc/busy.py": {"os"},  # Which process is at work.
    "spark/moving.py": {"os"},  # Files on disks.
    "spark/places.py": {"os"},
    "client/pool.py": {"os"},  # To notice a fork.
    "spark/java.py": {"os"},  # JAVA_HOME, for Spark to find.
    "spark/session.py": {"os"},  # Which Python the executors run.
    "configuring.py": {"os"},  # Settings, from the environment.
    "versions/world.py": {"os", "random", "time", "uuid.uuid4"},
    "testing/faults.py": {"random", "time"},
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_time_and_chance_come_in_through_the_constructor(path: Path) -> None:
    allowed = MAY_LOOK_OUTSIDE.get(str(path.relative_to(SOURCE)), set())
    assert _imported(path) & OUTSIDE <= allowed


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_opens_with_what_lives_there(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring
    assert docstring.rstrip().endswith((".", ":", '"""')) or "." in docstring


def test_files_stay_small_enough_to_tell_one_idea() -> None:
    long = {p.name: n for p in FILES if (n := len(p.read_text().splitlines())) > 420}
    assert not long.keys() - {"backend_contract.py", "model.py"}, long


def _imported(path: Path) -> set[str]:
    """Top-level modules, and names out of modules, that are imported at run time."""
    found: set[str] = set()
    for node in _run_time_statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _run_time_statements(tree: ast.Module) -> list[ast.stmt]:
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    return [n for n in ast.walk(tree) if isinstance(n, ast.stmt) and id(n) not in typing_only]

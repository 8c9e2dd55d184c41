"""Random damage to files of embedded stores: opening fails, or each answer is right or an error
that names the damage.

RocksDB has checksums in all of its files, so no damage may pass. SQLite has checksums only in its
log. In its main file, damage may change or remove references, lines of the ref-log, and fields of
commits that ids do not cover. Comparing the tables shows which of them it changed.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from msgspec import Struct

import morag
from morag.backend.base import ObjId
from morag.errors import MoragError
from tests.format.unhashed_fields import uncovered
from tests.rules.operations import put
from tests.safety.full_repository import SMALL, Answer, Query, answers, fill, queries
from tests.safety.history_checks import in_thread
from tests.safety.test_byte_fuzz import Damage, cut, flip, zero

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

URLS: Final = {"rocksdb": "rocksdb:{}", "sqlite": "sqlite:{}/morag.db"}
FILES: Final = {
    "rocksdb": ("*.sst", "*.log", "MANIFEST-*", "CURRENT"),
    "sqlite": ("morag.db", "morag.db-wal"),
}
CASES: Final = [(engine, pattern) for engine in FILES for pattern in FILES[engine]]
LEAST_NOTICED: Final = {"*.sst": 80, "morag.db": 30, "morag.db-wal": 45}
"""By file, in how many of a hundred rounds the damage is noticed at least (95 in other files).

SQLite's main file has free pages, and pages without a checksum. A truncated log reads as a log that
ended earlier."""
SECONDS: Final = 60.0
UNEXPLAINED: Final = "UNKNOWN"
WAYS: Final[tuple[Callable[[Random, bytes, list[bytes]], Damage], ...]] = (
    *(flip, flip, flip),
    *(cut, zero),
)


class Scene(Struct, frozen=True):
    """Files as a killed process leaves them: some rows are in tables, the rest in the log."""

    directory: Path
    queries: list[Query]
    right: list[Answer]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scene]:
    return {engine: _scene(engine, tmp_path_factory.mktemp(engine)) for engine in FILES}


def _scene(engine: str, base: Path) -> Scene:
    live, killed = base / "live", base / "killed"
    live.mkdir()
    url = URLS[engine].format(live)
    with morag.open(url, SMALL) as repo:
        fill(repo)
    with morag.open(url, SMALL) as repo:
        for number in range(3):
            repo.commit("side", [put(f"late-{number}", "in the log")], "in the log")
        all_queries = queries(repo)
        right = answers(repo, all_queries)
        shutil.copytree(live, killed, ignore=shutil.ignore_patterns("LOCK", "*-shm"))
    shutil.rmtree(live)
    for pattern in FILES[engine]:
        assert _found(killed, pattern), f"the killed store has no {pattern}"
    assert _outcome(engine, killed, Scene(killed, all_queries, right), base / "whole") == "harmless"
    return Scene(killed, all_queries, right)


def _found(directory: Path, pattern: str) -> list[Path]:
    return sorted(path for path in directory.rglob(pattern) if path.stat().st_size)


def damaged_outcome(engine: str, pattern: str, seed: int, scene: Scene, work: Path) -> str:
    random = Random(f"{engine}/{pattern}/{seed}")
    damaged = work / f"{seed}"
    shutil.copytree(scene.directory, damaged)
    path = random.choice(_found(damaged, pattern))
    way = random.choice(WAYS)
    path.write_bytes(way(random, path.read_bytes(), []))
    try:
        return _outcome(engine, damaged, scene, damaged)
    except AssertionError as error:
        raise AssertionError(
            f"{engine} {path.name}, {way.__name__}, seed {seed}: {error}"
        ) from None
    finally:
        shutil.rmtree(damaged)


def _outcome(engine: str, damaged: Path, scene: Scene, work: Path) -> str:
    if work != damaged:
        shutil.copytree(damaged, work)
    changed = _changed(scene.directory, work) if engine == "sqlite" else set()
    try:
        received = in_thread(lambda: _answers(URLS[engine].format(work), scene)).result(SECONDS)
    except MoragError as error:
        assert str(work) in str(error) or "backup" in str(error), f"refused with {error}"
        return "refused"
    reported = wrong = False
    for query, expected, answer in zip(scene.queries, scene.right, received, strict=True):
        if answer == expected:
            continue
        if answer.status >= 500:
            assert answer.code != UNEXPLAINED, f"{query} is answered with {answer}"
            assert answer.code == "REPOSITORY_CORRUPT", f"{query} is answered with {answer}"
            reported = True
        elif query.path.endswith("/recent-changes") and "INCONSISTENT" in str(answer.json):
            reported = True
        else:
            assert changed, f"{query} is answered with {answer}"
            wrong = True
    if wrong:
        return " and ".join(sorted(changed))
    return "reported" if reported else "harmless"


def _answers(url: str, scene: Scene) -> list[Answer]:
    with morag.open(url, SMALL) as repo:
        return answers(repo, scene.queries)


Table = dict[object, tuple[object, ...]]


def _changed(right: Path, damaged: Path) -> set[str]:
    """The rows and fields that differ in SQLite's tables and that no id covers."""
    before, after = (_tables(path) for path in (right, damaged))
    changed = {f"rows of {name}" for name in ("refs2", "ref_log") if before[name] != after[name]}
    for id, record in before["objs2"].items():
        other = after["objs2"].get(id)
        if other not in (None, record) and isinstance(id, bytes):
            values = record[3], other[3] if other else b""
            if all(isinstance(value, bytes) for value in values):
                changed |= uncovered(ObjId(id), *values) - {"nothing"}  # type: ignore[arg-type]
    return changed


def _tables(directory: Path) -> dict[str, Table]:
    """The readable rows of the tables by key, read from a copy: opening writes the log back."""
    copy = directory.with_name(directory.name + "-copy")
    shutil.copytree(directory, copy)
    found: dict[str, Table] = {"refs2": {}, "objs2": {}, "ref_log": {}}
    try:
        with sqlite3.connect(copy / "morag.db") as database:
            for name, table in found.items():
                try:
                    for _, key, *rest in database.execute(f"SELECT * FROM {name}"):
                        table[key] = (key, *rest)
                except (sqlite3.Error, OverflowError):
                    table["unreadable"] = ()
    finally:
        shutil.rmtree(copy)
    return found


def rounds(case: tuple[str, str], seeds: range, scene: Scene, work: Path) -> Counter[str]:
    found = Counter(damaged_outcome(*case, seed, scene, work) for seed in seeds)
    logger.info("%s %s: %s", *case, dict(found.most_common()))
    return found


def noticed(found: Counter[str]) -> int:
    return found["refused"] + found["reported"]


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_damage_is_reported_or_harmless(
    case: tuple[str, str], scenes: dict[str, Scene], tmp_path: Path
) -> None:
    found = rounds(case, range(4), scenes[case[0]], tmp_path)
    assert noticed(found) or case[0] == "sqlite"


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_damage_is_reported_or_harmless_in_hundreds_of_rounds(
    case: tuple[str, str], scenes: dict[str, Scene], tmp_path: Path
) -> None:
    found = rounds(case, range(4, 104), scenes[case[0]], tmp_path)
    assert noticed(found) >= LEAST_NOTICED.get(case[1], 95)
    assert case[0] == "sqlite" or found.keys() <= {"refused", "reported", "harmless"}

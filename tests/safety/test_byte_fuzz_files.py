"""Files of the embedded stores are damaged at random: opening refuses, or each answer is right or
an error that names the damage.

RocksDB has checksums in all of its files, so nothing may pass. SQLite has some in its log only: in
its main file a reference or a line of the ref-log may turn into another one, or vanish, and so may
the fields of commits that ids do not cover; what the file holds then is compared to find out which.
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
from tests.format.uncovered import uncovered
from tests.rules.scenes import put
from tests.safety.everything import SMALL, Question, Told, answers, fill, questions
from tests.safety.sound import in_thread
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
"""Of a hundred rounds. SQLite's main file has free pages, and pages without a checksum; a log that
is cut short reads as one that ended earlier. The files that are not named notice almost all."""
SECONDS: Final = 60.0
UNEXPLAINED: Final = "UNKNOWN"
WAYS: Final[tuple[Callable[[Random, bytes, list[bytes]], Damage], ...]] = (
    *(flip, flip, flip),
    *(cut, zero),
)


class Scene(Struct, frozen=True):
    """The files as a kill leaves them: some of it in tables, the rest in the log."""

    directory: Path
    asked: list[Question]
    right: list[Told]


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
        asked = questions(repo)
        right = answers(repo, asked)
        shutil.copytree(live, killed, ignore=shutil.ignore_patterns("LOCK", "*-shm"))
    shutil.rmtree(live)
    for pattern in FILES[engine]:
        assert _found(killed, pattern), f"there is no {pattern}"
    assert _outcome(engine, killed, Scene(killed, asked, right), base / "whole") == "harmless"
    return Scene(killed, asked, right)


def _found(directory: Path, pattern: str) -> list[Path]:
    return sorted(path for path in directory.rglob(pattern) if path.stat().st_size)


def judged(engine: str, pattern: str, seed: int, scene: Scene, work: Path) -> str:
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
    hit = _hit(scene.directory, work) if engine == "sqlite" else set()
    try:
        given = in_thread(lambda: _asked(URLS[engine].format(work), scene)).result(SECONDS)
    except MoragError as error:
        assert str(work) in str(error) or "backup" in str(error), f"refused by {error}"
        return "refused"
    reported = wrong = False
    for question, expected, answer in zip(scene.asked, scene.right, given, strict=True):
        if answer == expected:
            continue
        if answer.status >= 500:
            assert answer.code != UNEXPLAINED, f"{question} is answered by {answer}"
            assert answer.code == "REPOSITORY_CORRUPT", f"{question} is answered by {answer}"
            reported = True
        elif question.path.endswith("/recent-changes") and "INCONSISTENT" in str(answer.json):
            reported = True
        else:
            assert hit, f"{question} is answered by {answer}"
            wrong = True
    if wrong:
        return " and ".join(sorted(hit))
    return "reported" if reported else "harmless"


def _asked(url: str, scene: Scene) -> list[Told]:
    with morag.open(url, SMALL) as repo:
        return answers(repo, scene.asked)


Table = dict[object, tuple[object, ...]]


def _hit(right: Path, damaged: Path) -> set[str]:
    """What differs in SQLite's tables beside objects that their ids vouch for."""
    before, after = (_tables(path) for path in (right, damaged))
    hit = {f"rows of {name}" for name in ("refs2", "ref_log") if before[name] != after[name]}
    for id, record in before["objs2"].items():
        other = after["objs2"].get(id)
        if other not in (None, record) and isinstance(id, bytes):
            values = record[3], other[3] if other else b""
            if all(isinstance(value, bytes) for value in values):
                hit |= uncovered(ObjId(id), *values) - {"nothing"}  # type: ignore[arg-type]
    return hit


def _tables(directory: Path) -> dict[str, Table]:
    """As much of the tables as can be read, by key. Read from a copy: a log is written back."""
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
    found = Counter(judged(*case, seed, scene, work) for seed in seeds)
    logger.info("%s %s: %s", *case, dict(found.most_common()))
    return found


def noticed(found: Counter[str]) -> int:
    return found["refused"] + found["reported"]


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_damage_is_reported_or_does_not_matter(
    case: tuple[str, str], scenes: dict[str, Scene], tmp_path: Path
) -> None:
    found = rounds(case, range(4), scenes[case[0]], tmp_path)
    assert noticed(found) or case[0] == "sqlite"


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_damage_is_reported_or_does_not_matter_in_hundreds_of_rounds(
    case: tuple[str, str], scenes: dict[str, Scene], tmp_path: Path
) -> None:
    found = rounds(case, range(4, 104), scenes[case[0]], tmp_path)
    assert noticed(found) >= LEAST_NOTICED.get(case[1], 95)
    assert case[0] == "sqlite" or found.keys() <= {"refused", "reported", "harmless"}

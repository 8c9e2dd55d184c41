"""Stored bytes are damaged at random: each answer is right, or an error that names the damage.

Ids cover what objects hold, with the exceptions of `UNCOVERED`. Nothing covers references and lines
of the ref-log but the checksums of the engine below. Damage there may show as another answer, but
never as an error without an explanation, and it is counted by kind.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from morag import Repository
from morag.backend.base import ObjId
from morag.backend.protos import decode_row
from morag.errors import RepositoryCorrupt
from morag.persist import codec
from morag.persist.objects import Commit
from morag.versions.world import World
from tests.format.uncovered import UNCOVERED, uncovered
from tests.rules.scenes import Clock
from tests.safety.everything import SMALL, Question, Told, answers, fill, questions
from tests.safety.stored_bytes import StoredBytes

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

Damage = bytes
NOTICED: Final = {"reported", "harmless"}
EXPECTED: Final = {
    "c": {*NOTICED, *UNCOVERED},
    "ref": {*NOTICED, "reference row"},
    "u": {"harmless"},  # That it is there is all that matters; nobody reads what it holds.
    **dict.fromkeys(("r", "v", "i", "I", "s", "log"), NOTICED),
}
KINDS: Final = ("c", "r", "v", "i", "I", "s", "u", "ref", "log")


@cache
def scene() -> tuple[StoredBytes, list[Question], list[Told]]:
    """What is stored, all questions, and the right answers. The same in every run."""
    stored = StoredBytes()
    repo = opened(stored)
    fill(repo)
    asked = questions(repo)
    given = answers(opened(stored.copy()), asked)
    assert {each.status for each in given} == {200}
    return stored, asked, given


def opened(stored: StoredBytes) -> Repository:
    random = Random(1)
    clock = Clock()

    def now() -> int:
        clock.pass_seconds(0.001)
        return clock.nanos

    world = World(
        clock_nanos=now,
        random_bytes=random.randbytes,
        new_uuid=lambda: random.randbytes(16),
    )
    return Repository(stored, SMALL, world)


def flip(random: Random, data: bytes, _: list[bytes]) -> Damage:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def cut(random: Random, data: bytes, _: list[bytes]) -> Damage:
    return data[: random.randrange(len(data))]


def zero(random: Random, data: bytes, _: list[bytes]) -> Damage:
    start = random.randrange(len(data))
    end = min(len(data), start + random.randint(1, 64))
    return data[:start] + bytes(end - start) + data[end:]


def swap(random: Random, data: bytes, others: list[bytes]) -> Damage:
    return random.choice(others)


WAYS: Final[tuple[Callable[[Random, bytes, list[bytes]], Damage], ...]] = (
    *(flip, flip, flip),
    *(cut, zero, swap),
)


def things(stored: StoredBytes, kind: str) -> dict[bytes, bytes]:
    """All of a kind that are stored, by their keys."""
    if kind == "ref":
        return {name.encode(): data for name, data in stored.refs.items()}
    if kind == "log":
        return stored.log
    return {id: data for id, data in stored.rows.items() if decode_row(id, data).kind == kind}


def damaged(kind: str, seed: int) -> tuple[StoredBytes, str, str, set[str]]:
    """A damaged copy, the name of what is damaged, how, and which uncovered fields it hit."""
    random = Random(f"{kind}/{seed}")
    whole, _, _ = scene()
    stored = whole.copy()
    candidates = things(stored, kind)
    if kind == "r":
        # These are read only if a row is lost; for a tag that gives the same row again.
        candidates = {id: data for id, data in candidates.items() if b"refs/tags/" in data}
        for tag in ("refs/tags/v1", "refs/tags/v2"):
            del stored.refs[tag]
    key = random.choice(sorted(candidates))
    way = random.choice(WAYS)
    others = [data for other, data in candidates.items() if other != key] or [b"\0"]
    wrong = way(random, candidates[key], others)
    if kind == "ref":
        stored.refs[key.decode()] = wrong
        return stored, key.decode(), way.__name__, {"reference row"}
    if kind == "log":
        stored.log[key] = wrong
        return stored, key.hex(), way.__name__, set()
    stored.rows[ObjId(key)] = wrong
    return stored, key.hex(), way.__name__, uncovered(ObjId(key), candidates[key], wrong)


def judged(kind: str, seed: int) -> str:
    """What became of one round: `reported`, `harmless`, or the fields that were hit unnoticed."""
    stored, name, way, loose = damaged(kind, seed)
    _, asked, right = scene()
    where = f"{kind} {name}, {way}, seed {seed}"
    try:
        given = answers(opened(stored), asked)
    except RepositoryCorrupt as error:
        assert_explained(str(error), where)
        return "reported"
    reported = wrong = False
    for question, expected, answer in zip(asked, right, given, strict=True):
        if answer == expected:
            continue
        if answer.code == "REPOSITORY_CORRUPT":
            assert answer.status == 500
            assert_explained(answer.message, f"{where}: {question}")
            reported = True
        elif question.path.endswith("/recent-changes") and "INCONSISTENT" in str(answer.json):
            reported = True
        else:
            assert loose - {"nothing"}, f"{where}: {question} is answered by {answer}"
            assert answer.status < 500, f"{where}: {question} is answered by {answer}"
            wrong = True
    if wrong:
        return " and ".join(sorted(loose))
    return "reported" if reported else "harmless"


def assert_explained(message: str, where: str) -> None:
    """The sentence names an object, a reference or a line of the ref-log, and says what to do."""
    assert "backup" in message or "store it anew" in message or "import it" in message, (
        f"{where}: {message}"
    )
    assert any(word in message for word in ("Object", "reference", "ref-log", "Commit")), message


def rounds(kind: str, seeds: range) -> Counter[str]:
    found = Counter(judged(kind, seed) for seed in seeds)
    logger.info("%s: %s", kind, dict(found.most_common()))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_reported_or_does_not_matter(kind: str) -> None:
    rounds(kind, range(4))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_reported_or_does_not_matter_in_hundreds_of_rounds(kind: str) -> None:
    found = rounds(kind, range(4, 104))
    assert found.keys() <= EXPECTED[kind], "what ids do not cover is named here, and nothing else"
    assert found["reported"] > 40 or kind == "u"


def test_the_scene_has_every_kind_of_object() -> None:
    stored, _, _ = scene()
    kinds = {decode_row(id, data).kind for id, data in stored.rows.items()}
    assert kinds == set("crviIsu")
    assert stored.log and len(stored.refs) > 6
    rows = things(stored, "c").items()
    commits = [codec.decode(decode_row(ObjId(id), data)) for id, data in rows]
    assert any(c.sealed for c in commits if isinstance(c, Commit))
    assert any(c.merge_parents for c in commits if isinstance(c, Commit))
    assert any(c.stripes for c in commits if isinstance(c, Commit))
    assert any(c.reference_index for c in commits if isinstance(c, Commit))

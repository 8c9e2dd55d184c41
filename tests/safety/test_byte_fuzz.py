"""Random damage to stored bytes: each answer is right, or an error that names the damage.

An id is a hash of its object, except for the fields in `UNCOVERED`. References and lines of the
ref-log have no hash; only the engine's checksums protect them. Damage to them may change an answer,
but never causes an error without an explanation. The outcomes are counted by kind.
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
from morag.errors import RepositoryCorrupt
from morag.format import object_codec as codec
from morag.format.objects import Commit
from morag.format.rows import decode_row
from morag.versions.world import World
from tests.format.unhashed_fields import UNCOVERED, uncovered
from tests.rules.operations import Clock
from tests.safety.full_repository import SMALL, Answer, Query, answers, fill, queries
from tests.safety.stored_bytes import StoredBytes

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

Damage = bytes
NOTICED: Final = {"reported", "harmless"}
EXPECTED: Final = {
    "c": {*NOTICED, *UNCOVERED},
    "ref": {*NOTICED, "reference row"},
    "u": {"harmless"},  # Only its existence matters; its content is never read.
    **dict.fromkeys(("r", "v", "i", "I", "s", "log"), NOTICED),
}
KINDS: Final = ("c", "r", "v", "i", "I", "s", "u", "ref", "log")


@cache
def scene() -> tuple[StoredBytes, list[Query], list[Answer]]:
    """The stored bytes, all queries, and the right answers. They are the same in every run."""
    stored = StoredBytes()
    repo = opened(stored)
    fill(repo)
    all_queries = queries(repo)
    received = answers(opened(stored.copy()), all_queries)
    assert {each.status for each in received} == {200}
    return stored, all_queries, received


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


def stored_by_key(stored: StoredBytes, kind: str) -> dict[bytes, bytes]:
    """The stored bytes of one kind by key."""
    if kind == "ref":
        return {name.encode(): data for name, data in stored.refs.items()}
    if kind == "log":
        return stored.log
    return {id: data for id, data in stored.rows.items() if decode_row(id, data).kind == kind}


def damaged(kind: str, seed: int) -> tuple[StoredBytes, str, str, set[str]]:
    """A damaged copy, the key and the kind of the damage, and the uncovered fields it changed."""
    random = Random(f"{kind}/{seed}")
    whole, _, _ = scene()
    stored = whole.copy()
    candidates = stored_by_key(stored, kind)
    if kind == "r":
        # Reference objects are read only if a row is lost. For a tag they restore the same row.
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


def outcome(kind: str, seed: int) -> str:
    """The outcome of one round: `reported`, `harmless`, or the fields changed without notice."""
    stored, name, way, unprotected = damaged(kind, seed)
    _, all_queries, right = scene()
    where = f"{kind} {name}, {way}, seed {seed}"
    try:
        received = answers(opened(stored), all_queries)
    except RepositoryCorrupt as error:
        assert_explained(str(error), where)
        return "reported"
    reported = wrong = False
    for query, expected, answer in zip(all_queries, right, received, strict=True):
        if answer == expected:
            continue
        if answer.code == "REPOSITORY_CORRUPT":
            assert answer.status == 500
            assert_explained(answer.message, f"{where}: {query}")
            reported = True
        elif query.path.endswith("/recent-changes") and "INCONSISTENT" in str(answer.json):
            reported = True
        else:
            assert unprotected - {"nothing"}, f"{where}: {query} is answered with {answer}"
            assert answer.status < 500, f"{where}: {query} is answered with {answer}"
            wrong = True
    if wrong:
        return " and ".join(sorted(unprotected))
    return "reported" if reported else "harmless"


def assert_explained(message: str, where: str) -> None:
    """The message names an object, a reference or a line of the ref-log, and a remedy."""
    assert "backup" in message or "store it anew" in message or "import it" in message, (
        f"{where}: {message}"
    )
    assert any(word in message for word in ("Object", "reference", "ref-log", "Commit")), message


def rounds(kind: str, seeds: range) -> Counter[str]:
    found = Counter(outcome(kind, seed) for seed in seeds)
    logger.info("%s: %s", kind, dict(found.most_common()))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_reported_or_harmless(kind: str) -> None:
    rounds(kind, range(4))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_reported_or_harmless_in_hundreds_of_rounds(kind: str) -> None:
    found = rounds(kind, range(4, 104))
    assert found.keys() <= EXPECTED[kind], "only the expected fields can change without notice"
    assert found["reported"] > 40 or kind == "u"


def test_the_scene_has_every_kind_of_object() -> None:
    stored, _, _ = scene()
    kinds = {decode_row(id, data).kind for id, data in stored.rows.items()}
    assert kinds == set("crviIsu")
    assert stored.log and len(stored.refs) > 6
    rows = stored_by_key(stored, "c").items()
    commits = [codec.decode(decode_row(ObjId(id), data)) for id, data in rows]
    assert any(c.sealed for c in commits if isinstance(c, Commit))
    assert any(c.merge_parents for c in commits if isinstance(c, Commit))
    assert any(c.stripes for c in commits if isinstance(c, Commit))
    assert any(c.reference_index for c in commits if isinstance(c, Commit))

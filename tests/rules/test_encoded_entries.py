"""Encoded entries: what is left out, what is kept, and what is encoded each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag.backend.memory import MemoryBackend
from morag.config import Settings
from morag.format.index_entries import INCREMENTAL_ADD, INCREMENTAL_REMOVE, NONE, make_op
from morag.format.objects import Index
from morag.format.records import ObjId
from morag.index.keys import store_key
from morag.index.layered import Run
from morag.index.segment import Segment
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from morag.versions.encoded_entries import encoded_entries
from morag.versions.encoding import Encoding
from tests.rules.operations import key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.model.results import Entry


def op(action: bytes = NONE) -> bytes:
    return make_op(action, 1, ObjId(b"v" * 32), b"i" * 16)


class Scene:
    """Counts the entries that it encodes as their keys."""

    def __init__(self) -> None:
        self.persist = Persist(MemoryBackend(), ObjectCache(1 << 20), Settings(), lambda: 0)
        self.encoding = Encoding("keys", self._encode)
        self.encoded = 0

    def _encode(self, entries: Sequence[Entry]) -> list[bytes]:
        self.encoded += len(entries)
        return [str(entry.key).encode() for entry in entries]

    def stripe(self, keys: Sequence[bytes]) -> tuple[Index, Segment]:
        segment = Segment.build((each, op()) for each in keys)
        index = Index(segment.serialize(), segment)
        self.persist.store([index])
        return self.persist.fetch(Index, index.id), segment

    def read(self, *runs: Run) -> list[bytes]:
        found = encoded_entries(self.persist, runs, self.encoding)
        return [entry for batch in found for entry in batch.encoded]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_keys_that_are_not_content_are_left_out(scene: Scene) -> None:
    keys = sorted([store_key(key(name)) for name in "abc"] + [b"M\0a\0D\0\0", b"M\0bb\0D\0\0"])
    stripe, segment = scene.stripe(keys)
    assert scene.read(Run(stripe, segment, 0, 5)) == [b"a", b"b", b"c"]
    assert scene.read(Run(stripe, segment, 1, 3)) == [b"b"]
    assert scene.read(Run(stripe, segment, 3, 5)) == [b"c"]
    (batch,) = encoded_entries(scene.persist, [Run(stripe, segment, 1, 5)], scene.encoding)
    assert [batch.token(at) for at in range(len(batch))] == [
        each[:-2].hex() for each in keys if each.endswith(b"C\0\0") and each[2:3] in b"bc"
    ]


def test_a_stripe_is_encoded_once_and_other_entries_each_time(scene: Scene) -> None:
    stripe, segment = scene.stripe([store_key(key(f"{n:02}")) for n in range(10)])
    overlay = Segment.build(
        (store_key(key(name)), op(action))
        for name, action in (("a", INCREMENTAL_ADD), ("b", INCREMENTAL_REMOVE))
    )
    runs = Run(stripe, segment, 2, 4), Run(None, overlay, 0, 2)
    assert scene.read(*runs) == [b"02", b"03", b"a"]
    assert scene.encoded == 11
    assert scene.read(*runs) == [b"02", b"03", b"a"]
    assert scene.encoded == 12


def test_a_long_stripe_is_encoded_in_parts_and_not_kept(scene: Scene) -> None:
    keys = [store_key(key(f"{n:05}")) for n in range(2_500)]
    stripe, segment = scene.stripe(keys)
    for total in (2_490, 4_980):
        batches = list(
            encoded_entries(scene.persist, [Run(stripe, segment, 5, 2_495)], scene.encoding)
        )
        assert [len(batch) for batch in batches] == [1_000, 1_000, 490]
        assert [raw for batch in batches for raw in batch.keys] == keys[5:2_495]
        assert scene.encoded == total

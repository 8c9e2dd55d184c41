"""Configs are stored with the same objects, ids and bytes as Nessie stores."""

from __future__ import annotations

import json

import msgspec
import pytest

from morag.backend.memory import MemoryBackend
from morag.config import Settings
from morag.format.objects import Commit, RefObj, StringObj
from morag.format.records import ObjId
from morag.logic import history
from morag.model.configs import GarbageCollectorConfig, ReferenceCutoffPolicy
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from morag.versions.configs import CONFIGS, _need_reference
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.format import golden


@pytest.fixture
def recorded() -> Repository:
    """The recorded database, opened with Morag."""
    persist = golden.store(Settings())
    return Repository(persist._backend, Settings(), World())


def commits() -> list[Commit]:
    """The recorded updates, oldest first."""
    newest_first = history.log(golden.store(Settings()), golden.refs()[CONFIGS].pointer)
    return [*newest_first][::-1]


def text_of(commit: Commit) -> StringObj:
    found: StringObj = golden.of_kind(StringObj)[ObjId(commit.incremental[-48:-16])]
    return found


def test_a_recorded_config_is_read_as_nessie_returned_it(recorded: Repository) -> None:
    shown = json.loads(golden.unzipped("golden-api.json.gz"))["repositoryConfig"]["configs"]
    found = recorded.configs.get([GarbageCollectorConfig])
    assert json.loads(msgspec.json.encode(found)) == shown


def test_storing_a_recorded_config_again_makes_no_commit(recorded: Repository) -> None:
    (config,) = recorded.configs.get([GarbageCollectorConfig])
    before = golden.refs()[CONFIGS]
    assert recorded.configs.update(config) == config
    assert recorded._persist.ref(CONFIGS) == before


def test_the_same_updates_make_the_same_rows() -> None:
    updates = commits()
    assert len(updates) == 2
    backend, clock = MemoryBackend(), [golden.refs()[CONFIGS].created_micros * 1000]
    world = World(clock_nanos=lambda: clock[0], new_uuid=lambda: updates[0].incremental[-16:])
    repo = Repository(backend, Settings(parents_per_commit=8), world)
    _need_reference(repo._writers())
    for commit in updates:
        clock[0] = commit.created_micros * 1000
        text = text_of(commit).text
        repo.configs.update(msgspec.json.decode(text, type=GarbageCollectorConfig))

    (created,) = (o for o in golden.of_kind(RefObj).values() if o.name == CONFIGS)
    ids = [created.id, *(c.id for c in updates), *(text_of(c).id for c in updates)]
    stored = Persist(backend, ObjectCache(0), Settings(), lambda: 0).find(ids)
    rows = {row.id: row for row in golden.rows()}
    assert {id: stored[id].data for id in ids} == {id: rows[id].data for id in ids}
    moved = backend.read_refs("", [CONFIGS])[CONFIGS]
    assert moved.identity == golden.refs()[CONFIGS].identity
    assert [p.pointer for p in moved.previous] == [
        p.pointer for p in golden.refs()[CONFIGS].previous
    ]


def test_texts_are_escaped_as_nessie_does(recorded: Repository) -> None:
    """As recorded: upper-case digits, and two escapes for a character with two UTF-16 units."""
    policy = ReferenceCutoffPolicy('ü/😀"\\u001f', "\x00\x08\x09\x0a\x0c\x0d\x1f\x7f\u2028\ue000")
    recorded.configs.update(GarbageCollectorConfig(per_ref_cutoff_policies=(policy,)))
    ref = recorded._persist.ref(CONFIGS)
    assert ref is not None
    value = recorded._persist.fetch(Commit, ref.pointer).incremental[-48:-16]
    assert recorded._persist.fetch(StringObj, ObjId(value)).text.decode() == (
        '{"type":"GARBAGE_COLLECTOR","perRefCutoffPolicies":[{"referenceNamePattern":'
        r'"ü/\uD83D\uDE00\"\\u001f","policy":"\u0000\b\t\n\f\r\u001F'
        '\x7f\u2028\ue000"}]}'
    )
    assert recorded.configs.get([GarbageCollectorConfig])[0].per_ref_cutoff_policies == (policy,)

"""Repository configs: one of each type, replaced as a whole, and hidden from users."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import morag
from morag.backend.base import ObjId
from morag.backend.memory import MemoryBackend
from morag.backend.rocksdb.backend import RocksDBBackend
from morag.config import Settings
from morag.errors import BadRequest, ReferenceNotFound, RepositoryCorrupt
from morag.format.objects import Commit, CommitKind, StringObj
from morag.index.keys import text_key
from morag.logic import history
from morag.logic.commits import Add, Draft, build_commit
from morag.model.configs import (
    ConfigUpdated,
    GarbageCollectorConfig,
    ReferenceCutoffPolicy,
    RepositoryConfig,
    RepositoryConfigs,
)
from morag.service.configs import Configs, config_of
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.rules.operations import create, head
from tests.safety.history_checks import in_threads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from morag.backend.base import Backend
    from tests.rules.operations import Store

GC = [GarbageCollectorConfig]
CONFIGS = "nessie/configs"
SURROGATE = "\ud800"
ANY: Any = object()  # A value of a wrong type.
FULL = GarbageCollectorConfig(
    default_cutoff_policy="P30D",
    per_ref_cutoff_policies=(
        ReferenceCutoffPolicy("main", "P10D"),
        ReferenceCutoffPolicy("feature-.*", "50"),
    ),
    new_files_grace_period="PT3H",
    expected_file_count_per_content=123,
)


def policy(text: str) -> GarbageCollectorConfig:
    return GarbageCollectorConfig(default_cutoff_policy=text)


def of_any(values: Any) -> Any:
    """Values that a type checker would refuse."""
    return values


def stored(store: Store) -> list[Commit]:
    """The commits on the internal reference of the configs, newest first."""
    ref = store.persist.ref(CONFIGS)
    return [] if ref is None else list(history.log(store.persist, ref.pointer))


# Reading and writing


def test_nothing_is_stored_at_first_and_reading_creates_nothing(store: Store) -> None:
    before = store.everything()
    assert store.repo.configs.get(GC) == []
    assert store.everything() == before
    assert store.persist.ref(CONFIGS) is None


def test_a_stored_config_is_read_back(any_repo: Repository) -> None:
    assert any_repo.configs.update(FULL) is None
    assert any_repo.configs.get(GC) == [FULL]


def test_a_config_survives_a_restart(tmp_path: Path) -> None:
    with morag.open(f"rocksdb:{tmp_path}") as repo:
        repo.configs.update(FULL)
    with morag.open(f"rocksdb:{tmp_path}") as repo:
        assert repo.configs.get(GC) == [FULL]


def test_an_update_replaces_the_whole_config_and_returns_the_old_one(repo: Repository) -> None:
    repo.configs.update(FULL)
    assert repo.configs.update(policy("NONE")) == FULL
    assert repo.configs.update(GarbageCollectorConfig()) == policy("NONE")
    assert repo.configs.get(GC) == [GarbageCollectorConfig()]


def test_a_type_requested_twice_is_returned_once(repo: Repository) -> None:
    repo.configs.update(FULL)
    assert repo.configs.get([*GC, *GC]) == [FULL]
    assert repo.configs.get([]) == []


def test_the_ref_log_does_not_show_the_reference_of_the_configs(repo: Repository) -> None:
    repo.references.create_branch("before", "main")
    repo.configs.update(FULL)
    repo.references.create_branch("after", "main")
    names = ["after", "before", "main"]
    assert [move.reference.name for move in repo.references.moves().items] == names
    logged, token = [], None
    while True:
        page = repo.references.moves(1, token)
        logged += [move.reference.name for move in page.items]
        if (token := page.token) is None:
            break
    assert logged == names


def test_an_equal_config_makes_no_commit(store: Store) -> None:
    store.repo.configs.update(policy("P1D"))
    before = store.persist.ref(CONFIGS), store.rows()
    assert store.repo.configs.update(policy("P1D")) == policy("P1D")
    assert (store.persist.ref(CONFIGS), store.rows()) == before


def test_each_update_is_a_commit_of_one_entry_that_keeps_its_id(store: Store) -> None:
    for text in ("P1D", "P2D", "P1D"):
        store.repo.configs.update(policy(text))
    commits = stored(store)
    assert [commit.seq for commit in commits] == [3, 2, 1]
    assert {commit.message for commit in commits} == {"Update config GARBAGE_COLLECTOR"}
    assert {(commit.kind, commit.headers) for commit in commits} == {(CommitKind.NORMAL, ())}
    assert len({commit.incremental[-16:] for commit in commits}) == 1
    assert not any(row.kind == "u" for row in store.rows().values())


# Valid and invalid configs


@pytest.mark.parametrize(
    "text", ["P1D", "PT10M", "100", "2020-01-01T00:00:00Z", "none", "NONE", "p1d", "-P1D"]
)
def test_a_policy_is_stored_as_written(repo: Repository, text: str) -> None:
    repo.configs.update(policy(text))
    assert repo.configs.get(GC) == [policy(text)]


def test_policies_of_references_are_not_checked(repo: Repository) -> None:
    config = GarbageCollectorConfig(
        per_ref_cutoff_policies=(
            ReferenceCutoffPolicy("(", "garbage"),
            ReferenceCutoffPolicy("", ""),
        )
    )
    repo.configs.update(config)
    assert repo.configs.get(GC) == [config]


def test_a_grace_period_is_written_in_hours_minutes_and_seconds(repo: Repository) -> None:
    repo.configs.update(GarbageCollectorConfig(new_files_grace_period="P1DT90M"))
    assert repo.configs.get(GC) == [GarbageCollectorConfig(new_files_grace_period="PT25H30M")]


def test_absent_policies_equal_an_empty_list(store: Store) -> None:
    store.repo.configs.update(GarbageCollectorConfig(per_ref_cutoff_policies=()))
    assert store.repo.configs.get(GC) == [GarbageCollectorConfig()]
    store.repo.configs.update(GarbageCollectorConfig())
    assert len(stored(store)) == 1


@pytest.mark.parametrize(
    "config",
    [
        *(policy(text) for text in ("0", "abc", "", "P1Y", "-5", "01", "999999999999", SURROGATE)),
        policy(ANY),
        *(
            GarbageCollectorConfig(new_files_grace_period=text)
            for text in ("xyz", "", "P1W", "3600", SURROGATE, ANY)
        ),
        *(
            GarbageCollectorConfig(expected_file_count_per_content=count)
            for count in of_any((1 << 31, -(1 << 31) - 1, True, 1.5, object()))
        ),
        *(
            GarbageCollectorConfig(per_ref_cutoff_policies=policies)
            for policies in of_any(
                (
                    object(),
                    [ReferenceCutoffPolicy("a", "1")],
                    (object(),),
                    (ReferenceCutoffPolicy(SURROGATE, "1"),),
                    (ReferenceCutoffPolicy("a", ANY),),
                )
            )
        ),
        ANY,
        None,
    ],
)
def test_an_invalid_config_is_refused_and_stores_nothing(store: Store, config: Any) -> None:
    before = store.everything()
    with pytest.raises(BadRequest):
        store.repo.configs.update(config)
    assert store.everything() == before
    assert store.persist.ref(CONFIGS) is None


# Configs stored by other programs


HALF = b'{"type":"GARBAGE_COLLECTOR","defaultCutoffPolicy":"\\uD800"}'


def plant(store: Store, text: bytes) -> None:
    """Store a config as another program could."""
    store.repo.configs.update(FULL)
    ref = store.persist.ref(CONFIGS)
    assert ref is not None
    commit = store.persist.fetch(Commit, ref.pointer)
    string = StringObj("application/json", text)
    key = text_key("configs\0GARBAGE_COLLECTOR")
    content_id, value = commit.incremental[-16:], ObjId(commit.incremental[-48:-16])
    add = Add(key, 0, string.id, content_id, value)
    built = build_commit(store.persist, commit, Draft(message="planted", adds=[add]))
    assert store.persist.publish([string, built.commit], ref, built.commit.id) is not None


@pytest.mark.parametrize(
    ("text", "config"),
    [
        (b'{"type":"GARBAGE_COLLECTOR","defaultCutoffPolicy":"P1DT"}', policy("P1DT")),
        (
            b'{"perRefCutoffPolicies":null,"x":{},"type":"GARBAGE_COLLECTOR"}',
            GarbageCollectorConfig(),
        ),
    ],
)
def test_configs_that_nessie_accepted_are_readable_and_replaceable(
    store: Store, text: bytes, config: RepositoryConfig
) -> None:
    plant(store, text)
    assert store.repo.configs.get(GC) == [config]
    assert store.repo.configs.update(FULL) == config
    assert store.repo.configs.get(GC) == [FULL]


@pytest.mark.parametrize(
    "text", [b"", b"[]", b'{"type":"CUSTOM"}', b'{"type":5', b'{"type":"\xff"}', HALF]
)
def test_a_stored_text_that_is_not_a_config_is_damage_until_it_is_replaced(
    store: Store, text: bytes
) -> None:
    plant(store, text)
    with pytest.raises(RepositoryCorrupt, match="GARBAGE_COLLECTOR cannot be read, store it anew"):
        store.repo.configs.get(GC)
    assert store.repo.configs.update(FULL) is None
    assert store.repo.configs.get(GC) == [FULL]


# Hidden


def test_the_reference_of_the_configs_is_hidden(repo: Repository) -> None:
    create(repo, "main", a="a")
    before, main = list(repo.references.list()), head(repo)
    repo.configs.update(FULL)
    repo.configs.update(policy("P1D"))
    assert list(repo.references.list()) == before
    assert head(repo) == main
    for name in (CONFIGS, "configs", "nessie"):
        with pytest.raises(ReferenceNotFound):
            repo.references.get(name)


def test_a_branch_of_the_same_name_does_not_change_the_configs(repo: Repository) -> None:
    repo.configs.update(FULL)
    repo.references.create_branch(CONFIGS, None)
    create(repo, CONFIGS, a="a")
    assert repo.configs.get(GC) == [FULL]
    repo.references.delete(CONFIGS)
    assert repo.configs.get(GC) == [FULL]


# Concurrent updates


@pytest.fixture(params=["memory", "rocksdb"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    backend = MemoryBackend() if request.param == "memory" else RocksDBBackend(tmp_path, sync=False)
    yield backend
    backend.close()


def test_no_update_of_two_servers_is_lost(backend: Backend) -> None:
    """Each update replaces exactly one other, so all updates form one sequence."""
    servers = [Repository(backend, Settings(), World()) for _ in range(2)]

    configs = [[policy(str(worker * 100 + n)) for n in range(1, 11)] for worker in range(4)]

    def work(number: int) -> list[RepositoryConfig | None]:
        return [servers[number % 2].configs.update(config) for config in configs[number]]

    replaced = list(chain(*in_threads(partial(work, number) for number in range(4))))
    (last,) = servers[0].configs.get(GC)
    written = set(chain(*configs))
    assert replaced.count(None) == 1
    assert len(replaced) == len(written)
    assert {config for config in (*replaced, last) if config is not None} == written


def test_servers_that_store_the_first_config_together_share_one_reference(backend: Backend) -> None:
    servers = [Repository(backend, Settings(), World()) for _ in range(4)]
    replaced = in_threads(
        partial(server.configs.update, policy(str(number)))
        for number, server in enumerate(servers, 1)
    )
    assert replaced.count(None) == 1
    assert len({config for server in servers for config in server.configs.get(GC)}) == 1


# The service for clients


def test_a_client_reads_configs_by_type_name(repo: Repository) -> None:
    service = Configs(repo)
    assert service.read([]) == service.read(["GARBAGE_COLLECTOR"]) == ()
    assert service.update(FULL) is None
    assert service.read(["GARBAGE_COLLECTOR", "GARBAGE_COLLECTOR"]) == (FULL,)


@pytest.mark.parametrize("name", ["UNKNOWN_TYPE", "garbage_collector", ""])
def test_an_unknown_type_name_is_refused_beside_known_ones(repo: Repository, name: str) -> None:
    message = f"^No repository config type registered for name {name}$"
    with pytest.raises(BadRequest, match=message):
        Configs(repo).read(["GARBAGE_COLLECTOR", name])


def test_configs_are_distinguished_by_type() -> None:
    sent = {"type": "GARBAGE_COLLECTOR", "defaultCutoffPolicy": "P1D", "foo": 1}
    assert config_of(sent) == policy("P1D")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"type": "CUSTOM", "foo": 1},
            "^Repository config type bundle for 'CUSTOM' is not available on the Nessie server "
            r"side\.$",
        ),
        ({"type": "garbage_collector"}, "bundle for 'garbage_collector'"),
        ({"type": 5}, "bundle for '5'"),
        ({}, "names its 'type'"),
        ({"type": None}, "names its 'type'"),
        ("GARBAGE_COLLECTOR", "names its 'type'"),
        ([], "names its 'type'"),
        (None, "names its 'type'"),
        (
            {"type": "GARBAGE_COLLECTOR", "perRefCutoffPolicies": [{"referenceNamePattern": "x"}]},
            "missing required field `policy`",
        ),
        (
            {"type": "GARBAGE_COLLECTOR", "expectedFileCountPerContent": "abc"},
            "Expected `int",
        ),
    ],
)
def test_a_document_that_is_not_a_config_is_refused_with_a_message(
    document: object, message: str
) -> None:
    with pytest.raises(BadRequest, match=message):
        config_of(document)


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        (RepositoryConfigs(), b"{}"),
        (
            RepositoryConfigs((policy("1"),)),
            b'{"configs":[{"type":"GARBAGE_COLLECTOR","defaultCutoffPolicy":"1"}]}',
        ),
        (ConfigUpdated(None), b'{"previous":null}'),
        (ConfigUpdated(GarbageCollectorConfig()), b'{"previous":{"type":"GARBAGE_COLLECTOR"}}'),
    ],
)
def test_unset_fields_are_left_out_except_the_previous_config(answer: object, sent: bytes) -> None:
    assert msgspec.json.encode(answer) == sent

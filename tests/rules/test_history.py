"""Logs, ref specs, merge bases, and the metadata of references."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag.errors import BadRequest, ReferenceNotFound
from tests.rules.operations import (
    NO_ANCESTOR,
    SECOND,
    UNKNOWN,
    Store,
    create,
    head,
    messages,
    put,
    update,
)

if TYPE_CHECKING:
    from morag import Repository


@pytest.fixture
def merged() -> Store:
    """`main` is first, second, third, merge; `side` starts at second; one commit a minute."""
    store = Store()
    repo = store.repo
    for name in ("first", "second"):
        repo.commit("main", [put(name, name)], name)
        store.clock.pass_seconds(60)
    repo.references.create_branch("side", "main")
    for branch, name in (("main", "third"), ("side", "side")):
        repo.commit(branch, [put(name, name)], name)
        store.clock.pass_seconds(60)
    repo.merge("side", "main")
    repo.references.create_branch("empty", None)
    return store


# Ref specs

MERGE = "Merged side at "


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("main", MERGE),
        ("main@", MERGE),
        ("main@{merge}", MERGE),
        ("@{merge}", MERGE),
        ("side@{merge}", MERGE),
        ("main@{MERGE}", MERGE),
        ("main~1", "third"),
        ("main~2", "second"),
        ("main~3", "first"),
        ("main~4", None),
        ("main~5", None),
        ("main~2147483646", None),
        ("main@~1", "third"),
        ("main^1", "third"),
        ("main^2", "side"),
        ("main^3", None),
        ("main~1^1", "second"),
        ("main~1^2", None),
        ("main^2~1", "second"),
        ("@{merge}^2^1", "second"),
        ("main~1~1", "second"),
        ("main~1~1~1~1~1", None),
        ("empty", None),
        ("empty~1", None),
        (f"main@{NO_ANCESTOR}", None),
        ("main*2023-11-14T22:13:20Z", "first"),
        ("main*2023-11-14T22:13:20.000Z", "first"),
        ("main*2023-11-14T22:13:19.999999999Z", None),
        ("main*2023-11-14T22:15:19Z", "second"),
        ("main*2023-11-14T22:15:20Z", "third"),
        ("main*2020-01-01T00:00:00.000Z", None),
        ("main*2099-01-01T00:00:00.123456789Z", MERGE),
        ("main*1700000000000", "first"),
        ("main*1700000059999", "first"),
        ("main*1700000060000", "second"),
        ("main*0", None),
        ("main*4102444800000", MERGE),
        ("main*2099-01-01T00:00:00Z~1", "third"),
        ("main^2*1700000060000", "second"),
    ],
)
def test_a_spec_resolves_to_its_commit(merged: Store, spec: str, message: str | None) -> None:
    hash = head(merged.repo)
    found = messages(merged.repo, spec.format(merge=hash, MERGE=hash.upper()))
    if message is None:
        assert found == []
    else:
        assert found[0].startswith(message)


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "@",
        "~1",
        "^1",
        "*0",
        "main~",
        "main~x",
        "main~-1",
        "main~0",
        "main^0",
        "main^",
        "main*",
        "main*nope",
        "main*2099-01-01",
        "main*2099-13-01T00:00:00Z",
        "main~99999999999999999999",
        "main*99999999999999999999",
        "main@abcdef",
        "main@xyzxyzxyz",
        f"main@{UNKNOWN}00",
        f"main@{UNKNOWN}@{UNKNOWN}",
        "1main",
        "a..b",
        "main/",
        "main.",
        "ma in",
        "main\n",
        "ünicode",
    ],
)
def test_a_spec_must_be_well_formed(repo: Repository, spec: str) -> None:
    with pytest.raises(BadRequest):
        repo.history.log(spec)
    with pytest.raises(BadRequest):
        repo.references.create_branch("dev", spec)
    with pytest.raises(BadRequest):
        repo.merge(spec, "main")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("main~0", r"^Illegal value 0 for spec type N_TH_PREDECESSOR \(~\)$"),
        ("main^0", r"^Illegal value 0 for spec type N_TH_PARENT \(\^\)$"),
    ],
)
def test_steps_count_from_one(repo: Repository, spec: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        repo.history.log(spec)


def test_a_time_in_a_spec_is_compared_with_the_commit_and_not_the_row(store: Store) -> None:
    """Commit times have nanoseconds, rows have microseconds."""
    store.clock.nanos += 123_456_789
    store.repo.commit("main", [put("t", "t")], "late")
    assert messages(store.repo, "main*2023-11-14T22:13:20.123456789Z") == ["late"]
    assert messages(store.repo, "main*2023-11-14T22:13:20.123456788Z") == []
    assert messages(store.repo, f"main*{store.clock.nanos // (SECOND // 1000)}") == []


# Logs


def test_a_log_follows_first_parents_newest_first(merged: Store) -> None:
    entries = list(merged.repo.history.log("main"))
    assert [e.meta.message for e in entries[1:]] == ["third", "second", "first"]
    assert [e.parent for e in entries] == [*(e.meta.hash for e in entries[1:]), NO_ANCESTOR]
    assert entries[0].meta.parents == (entries[1].meta.hash, head(merged.repo, "side"))
    assert all(entry.operations is None for entry in entries)


def test_a_long_log_is_complete(any_repo: Repository) -> None:
    hashes = [any_repo.commit("main", [put(f"t{n}", "t")], str(n)).hash for n in range(65)]
    assert list(any_repo.history.hashes("main")) == hashes[::-1]
    assert [e.meta.hash for e in any_repo.history.log("main")] == hashes[::-1]
    assert list(any_repo.history.hashes("main~30")) == hashes[34::-1]
    assert messages(any_repo, "main~64") == ["0"]
    assert messages(any_repo, "main~65") == []


@pytest.mark.parametrize("size", [1, 2, 3, 4, 100])
def test_pages_together_hold_everything(merged: Store, size: int) -> None:
    repo = merged.repo
    gathered: list[str | None] = []
    token = None
    while True:
        page = repo.history.log("main", token=token).page(size)
        hashes = repo.history.hashes("main", token=token).page(size)
        assert [e.meta.hash for e in page.items] == list(hashes.items)
        assert page.token == hashes.token
        gathered += hashes.items
        token = page.token
        if token is None:
            break
    assert gathered == list(repo.history.hashes("main"))


def test_a_log_down_to_a_hash_includes_it(merged: Store) -> None:
    repo = merged.repo
    everything = list(repo.history.hashes("main"))
    for count, last in enumerate(everything, 1):
        assert list(repo.history.hashes("main", until=last.upper())) == everything[:count]
        log = repo.history.log("main", until=last)
        assert [entry.meta.hash for entry in log] == everything[:count]


def test_a_limit_outside_the_history_has_no_effect(merged: Store) -> None:
    for until in (UNKNOWN, UNKNOWN[:8], head(merged.repo, "side"), NO_ANCESTOR):
        assert len(list(merged.repo.history.log("main", until=until))) == 4


def test_a_limit_must_be_a_well_formed_hash(merged: Store) -> None:
    for until in ("zz", "", "abc"):
        with pytest.raises(BadRequest, match="Hash must consist of"):
            merged.repo.history.log("main", until=until)


# Merge bases


@pytest.mark.parametrize(
    ("one", "other", "base"),
    [
        ("main", "main", "main"),
        ("main", "side", "side"),
        ("side", "main", "side"),
        ("main~1", "side", "main~2"),
        ("main~3", "side", "main~3"),
        ("main", "main~2", "main~2"),
    ],
)
def test_the_merge_base_is_the_nearest_common_commit(
    merged: Store, one: str, other: str, base: str
) -> None:
    (expected,) = merged.repo.history.hashes(base).page(1).items
    assert merged.repo.history.merge_base(one, other) == expected


def test_unrelated_branches_have_no_merge_base(merged: Store) -> None:
    repo = merged.repo
    repo.references.create_branch("unrelated", None)
    create(repo, "unrelated", s="s")
    assert repo.history.merge_base("main", "unrelated") is None
    assert repo.history.merge_base("main", "empty") is None
    assert repo.history.merge_base("empty", "empty") is None


def test_crossed_merges_have_a_base_that_is_no_ancestor_of_another(store: Store) -> None:
    repo = store.repo
    create(repo, "main", base="base")
    repo.references.create_branch("dev", "main")
    create(repo, "main", m="m")
    create(repo, "dev", d="d")
    crossing = {head(repo), head(repo, "dev")}
    repo.references.create_branch("old", "dev")
    repo.merge("main", "dev")
    repo.merge("old", "main")
    assert repo.history.merge_base("main", "dev") in crossing


# Metadata of references


def test_metadata_compares_with_the_default_branch(merged: Store) -> None:
    repo = merged.repo
    update(repo, "side", "side", "again")
    found = repo.references.metadata("side")
    assert found is not None
    assert (found.ahead, found.behind, found.total_commits) == (2, 2, 4)
    (shared,) = repo.history.hashes("main~2").page(1).items
    assert found.common_ancestor == shared, "merge parents do not count"
    assert found.head.message == "update side"


def test_the_default_branch_and_tags_have_no_comparison(merged: Store) -> None:
    merged.repo.references.create_tag("v1", "side")
    for name, total in (("main", 4), ("v1", 3)):
        found = merged.repo.references.metadata(name)
        assert found is not None
        assert (found.ahead, found.behind, found.common_ancestor) == (None, None, None)
        assert found.total_commits == total


def test_an_unrelated_branch_is_ahead_by_all_its_commits(merged: Store) -> None:
    repo = merged.repo
    repo.references.create_branch("unrelated", None)
    create(repo, "unrelated", s="s")
    found = repo.references.metadata("unrelated")
    assert found is not None
    assert (found.ahead, found.behind, found.total_commits) == (1, 4, 1)
    assert found.common_ancestor == NO_ANCESTOR


def test_a_branch_is_ahead_of_an_empty_default_branch(repo: Repository) -> None:
    repo.references.create_branch("dev", None)
    create(repo, "dev", d="d")
    found = repo.references.metadata("dev")
    assert found is not None
    assert (found.ahead, found.behind, found.common_ancestor) == (1, 0, NO_ANCESTOR)


def test_an_empty_branch_has_no_metadata(merged: Store) -> None:
    assert merged.repo.references.metadata("empty") is None
    with pytest.raises(ReferenceNotFound):
        merged.repo.references.metadata("nope")


def test_a_distant_common_ancestor_is_found(store: Store) -> None:
    """The common ancestor is further away than the tail of any commit reaches."""
    repo = store.repo
    for number in range(5):
        repo.commit("main", [put(f"base{number}", "t")], "base")
    shared = head(repo)
    repo.references.create_branch("dev", "main")
    for number in range(50):
        repo.commit("dev", [put(f"dev{number}", "t")], "dev")
    for number in range(30):
        repo.commit("main", [put(f"main{number}", "t")], "main")
    found = repo.references.metadata("dev")
    assert found is not None
    assert (found.ahead, found.behind, found.common_ancestor) == (50, 30, shared)
    assert repo.history.merge_base("dev", "main") == shared

"""The effects of a commit, and the state to which its operations apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag import CommitMeta, Unchanged
from morag.errors import BadRequest, ReferenceConflict, ReferenceNotFound
from tests.rules.operations import (
    NO_ANCESTOR,
    UNKNOWN,
    conflict_pairs,
    content_id,
    create,
    delete,
    head,
    key,
    last_meta,
    messages,
    put,
    tables,
    update,
)

if TYPE_CHECKING:
    from morag import Repository
    from morag.model.operations import Operation
    from tests.rules.operations import Store


# Metadata


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        (CommitMeta(message="m", committer="me"), "Cannot set the committer on the client side"),
        (
            CommitMeta(message="m", commit_time="2023-01-01T00:00:00Z"),
            "Cannot set the commit time on the client side",
        ),
        (CommitMeta(message="m", hash=UNKNOWN), "Cannot set the commit hash on the client side"),
        (
            CommitMeta(message="m", parents=(UNKNOWN,)),
            "Cannot set the parent commit hashes on the client side",
        ),
    ],
)
def test_fields_that_the_catalog_sets_are_refused_from_clients(
    store: Store, meta: CommitMeta, message: str
) -> None:
    before = store.everything()
    with pytest.raises(BadRequest, match=message):
        store.repo.commit("main", [put("t", "t")], meta)
    with pytest.raises(BadRequest, match=message):
        store.repo.merge("main", "main", meta=meta)
    with pytest.raises(BadRequest, match=message):
        store.repo.transplant([UNKNOWN], "main", meta=meta)
    assert store.everything() == before


def test_the_catalog_sets_missing_metadata(store: Store) -> None:
    hash = store.repo.commit("main", [put("t", "t")], "why").hash
    assert last_meta(store.repo) == CommitMeta(
        message="why",
        authors=("",),
        author_time="2023-11-14T22:13:20Z",
        hash=hash,
        committer="",
        commit_time="2023-11-14T22:13:20Z",
        parents=(NO_ANCESTOR,),
    )


def test_the_committer_is_the_default_author(repo: Repository) -> None:
    repo.commit("main", [put("t", "t")], "why", committer="ann")
    assert (last_meta(repo).committer, last_meta(repo).authors) == ("ann", ("ann",))


def test_the_clients_own_metadata_is_kept(store: Store) -> None:
    meta = CommitMeta(
        message="why",
        authors=("ann", "bob"),
        author_time="2020-02-02T22:02:02.5+02:00",
        signed_off_by=("eve",),
        properties={"Job": ("1", "2")},
    )
    store.repo.commit("main", [put("t", "t")], meta, committer="carl")
    stored = last_meta(store.repo)
    assert (stored.authors, stored.signed_off_by, stored.committer) == (
        ("ann", "bob"),
        ("eve",),
        "carl",
    )
    assert stored.author_time == "2020-02-02T20:02:02.500Z"
    assert stored.commit_time == "2023-11-14T22:13:20Z"
    assert stored.properties == {"job": ("1", "2")}, "property names lose their case"


@pytest.mark.parametrize("message", ["", " ", "two\nlines", "snow ☃"])
def test_any_message_is_accepted(repo: Repository, message: str) -> None:
    repo.commit("main", [put("t", "t")], message)
    assert messages(repo) == [message]


# Operations


@pytest.mark.parametrize(
    "operations",
    [
        [put("t", "1"), put("t", "2")],
        [delete("t"), delete("t")],
        [put("t", "1"), delete("t")],
        [delete("t"), put("t", "1", "11111111-2222-3333-4444-555555555555")],
        [delete("t"), put("t", "1"), put("t", "2")],
        [Unchanged(key("t")), put("t", "1")],
        [put("t", "1"), Unchanged(key("t"))],
    ],
)
def test_a_key_must_not_occur_twice_in_a_commit(store: Store, operations: list[Operation]) -> None:
    create(store.repo, "main", t="t")
    before = store.everything()
    with pytest.raises(BadRequest, match="Duplicate key in commit operations: t"):
        store.repo.commit("main", operations, "twice")
    assert store.everything() == before


def test_a_commit_needs_an_operation(store: Store) -> None:
    before = store.everything()
    with pytest.raises(BadRequest, match="at least one operation"):
        store.repo.commit("main", [], "nothing")
    assert store.everything() == before


def test_a_key_deleted_and_put_again_has_a_new_content_id(any_repo: Repository) -> None:
    old = create(any_repo, "main", t="t")["t"]
    result = any_repo.commit("main", [delete("t"), put("t", "anew")], "replace")
    assert result.added == {key("t"): content_id(any_repo, "main", "t")}
    assert content_id(any_repo, "main", "t") != old
    assert tables(any_repo) == {"t": "anew"}


def test_only_new_keys_are_reported_as_added(repo: Repository) -> None:
    id = create(repo, "main", t="t", gone="g")["t"]
    result = repo.commit("main", [put("t", "2", id), put("new", "n"), delete("gone")], "mixed")
    assert result.added == {key("new"): content_id(repo, "main", "new")}
    assert result.hash == head(repo)


def test_identical_content_still_makes_a_commit(repo: Repository) -> None:
    id = create(repo, "main", t="t")["t"]
    before = head(repo)
    repo.commit("main", [put("t", "t", id)], "the same")
    assert head(repo) != before
    assert messages(repo) == ["the same", "create t"]


def test_operations_are_logged_in_key_order_without_assertions(repo: Repository) -> None:
    create(repo, "main", a="a", z="z")
    repo.commit("main", [put("n", "n"), delete("z"), put("b", "b"), Unchanged(key("a"))], "mixed")
    (entry,) = repo.history.log("main", with_operations=True).page(1).items
    done = [(type(o).__name__, str(o.key)) for o in entry.operations or ()]
    assert done == [("Put", "b"), ("Put", "n"), ("Delete", "z")]


# Unchanged


def test_a_commit_of_assertions_only_is_a_commit(repo: Repository) -> None:
    create(repo, "main", t="t")
    hash = repo.commit("main", [Unchanged(key("t"))], "as it is").hash
    assert head(repo) == hash
    assert tables(repo) == {"t": "t"}


def test_an_assertion_on_the_head_always_holds(repo: Repository) -> None:
    create(repo, "main", t="t")
    repo.commit("main", [Unchanged(key("t")), Unchanged(key("nope"))], "1", expected=head(repo))
    repo.commit("main", [Unchanged(key("nope"))], "2")
    assert messages(repo)[:2] == ["2", "1"]


def test_an_assertion_fails_only_when_its_key_was_changed(repo: Repository) -> None:
    create(repo, "main", t="t", u="u")
    old_head = head(repo)
    update(repo, "main", "u", "u2")
    repo.commit("main", [Unchanged(key("t"))], "t is the same", expected=old_head)
    with pytest.raises(ReferenceConflict) as raised:
        repo.commit("main", [Unchanged(key("u")), put("v", "v")], "u is not", expected=old_head)
    assert conflict_pairs(raised.value.conflicts) == [("VALUE_DIFFERS", "u")]
    assert "v" not in tables(repo)


# Expected hash


def test_the_default_expected_hash_is_the_head(repo: Repository) -> None:
    create(repo, "main", a="a")
    create(repo, "main", b="b")
    assert tables(repo) == {"a": "a", "b": "b"}


def test_commits_to_other_keys_do_not_conflict(any_repo: Repository) -> None:
    ids = create(any_repo, "main", a="a1", b="b1", c="c1")
    old_head = head(any_repo)
    update(any_repo, "main", "a", "a2")
    any_repo.commit("main", [put("b", "b2", ids["b"])], "b", expected=old_head)
    any_repo.commit("main", [delete("c")], "c", expected=old_head)
    any_repo.commit("main", [put("d", "d1")], "d", expected=NO_ANCESTOR)
    assert tables(any_repo) == {"a": "a2", "b": "b2", "d": "d1"}
    parents = [entry.parent for entry in any_repo.history.log("main")]
    assert parents == [*list(any_repo.history.hashes("main"))[1:], NO_ANCESTOR]


def test_an_expected_hash_may_be_far_below_the_head(repo: Repository) -> None:
    id = create(repo, "main", a="a")["a"]
    old_head = head(repo)
    for number in range(45):
        repo.commit("main", [put(f"t{number}", "t")], str(number))
    repo.commit("main", [put("a", "a2", id)], "late", expected=old_head)
    assert tables(repo)["a"] == "a2"


@pytest.mark.parametrize("hash", [UNKNOWN, UNKNOWN[:16]])
def test_an_unknown_expected_hash_is_not_found(store: Store, hash: str) -> None:
    create(store.repo, "main", t="t")
    before = store.everything()
    message = rf"^Could not find commit '{hash}' in reference 'main'\.$"
    with pytest.raises(ReferenceNotFound, match=message):
        store.repo.commit("main", [put("u", "u")], "u", expected=hash)
    with pytest.raises(ReferenceNotFound, match=message):
        store.repo.merge("main", "main", expected=hash)
    with pytest.raises(ReferenceNotFound, match=message):
        store.repo.transplant([head(store.repo)], "main", expected=hash)
    assert store.everything() == before


def test_a_prefix_of_the_head_is_not_an_expected_hash(repo: Repository) -> None:
    create(repo, "main", t="t")
    prefix = head(repo)[:16]
    with pytest.raises(ReferenceNotFound, match=f"Could not find commit '{prefix}'"):
        repo.commit("main", [put("u", "u")], "u", expected=prefix)


def test_a_commit_of_another_branch_is_not_an_expected_hash(repo: Repository) -> None:
    repo.references.create_branch("other", None)
    create(repo, "main", t="t")
    create(repo, "other", x="x")
    foreign = head(repo, "other")
    with pytest.raises(
        ReferenceNotFound, match=rf"^Could not find commit '{foreign}' in reference 'main'\.$"
    ):
        repo.commit("main", [put("u", "u")], "u", expected=foreign)


def test_a_merged_commit_is_not_on_the_branch(repo: Repository) -> None:
    """Only first parents belong to the branch."""
    create(repo, "main", t="t")
    repo.references.create_branch("dev", "main")
    create(repo, "dev", u="u")
    repo.merge("dev", "main")
    with pytest.raises(ReferenceNotFound, match="Could not find commit"):
        repo.commit("main", [put("v", "v")], "v", expected=head(repo, "dev"))


def test_the_id_of_another_object_is_not_an_expected_hash(store: Store) -> None:
    create(store.repo, "main", t="t")
    for id in store.rows():
        if id.hex() != head(store.repo):
            with pytest.raises(ReferenceNotFound, match="Could not find commit"):
                store.repo.commit("main", [put("u", "u")], "u", expected=id.hex())


@pytest.mark.parametrize("hash", ["", "zz", "abc", "1234567", "x" * 64, "a" * 66])
def test_an_expected_hash_must_be_well_formed(repo: Repository, hash: str) -> None:
    with pytest.raises(BadRequest, match="Hash must consist of the hex representation"):
        repo.commit("main", [put("u", "u")], "u", expected=hash)


def test_an_expected_hash_may_be_in_upper_case(repo: Repository) -> None:
    create(repo, "main", t="t")
    repo.commit("main", [put("u", "u")], "u", expected=head(repo).upper())
    repo.commit("main", [put("v", "v")], "v", expected=NO_ANCESTOR.upper())
    assert set(tables(repo)) == {"t", "u", "v"}


def test_every_key_is_new_when_the_empty_history_is_expected(repo: Repository) -> None:
    id = create(repo, "main", t="t")["t"]
    with pytest.raises(BadRequest, match="New value for key 't' must not have a content ID"):
        repo.commit("main", [put("t", "2", id)], "update", expected=NO_ANCESTOR)
    with pytest.raises(ReferenceConflict, match="Key 't' already exists"):
        repo.commit("main", [put("t", "2")], "create", expected=NO_ANCESTOR)


# Branches


def test_a_commit_needs_an_existing_branch(store: Store) -> None:
    create(store.repo, "main", t="t")
    store.repo.references.create_tag("v1", "main")
    before = store.everything()
    for name, error, message in (
        ("nope", ReferenceNotFound, "Named reference 'nope' not found"),
        ("v1", BadRequest, "Reference to .* into must be a branch"),
    ):
        with pytest.raises(error, match=message):
            store.repo.commit(name, [put("u", "u")], "u")
        with pytest.raises(error, match=message):
            store.repo.merge("main", name)
        with pytest.raises(error, match=message):
            store.repo.transplant([head(store.repo)], name)
    assert store.everything() == before


def test_a_commit_that_is_too_large_for_the_store_is_refused(store: Store) -> None:
    before = store.everything()
    huge = put("t", "x" * (store.settings.max_object_bytes + 1))
    with pytest.raises(BadRequest, match="larger than the store allows"):
        store.repo.commit("main", [put("u", "u"), huge], "huge")
    assert store.everything() == before

"""Content ids: how they are generated and kept, and that a content keeps its type."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest

from morag import (
    UDF,
    CommitMeta,
    ContentKey,
    DeltaLakeTable,
    MergeBehavior,
    MergeKey,
    Put,
    Repository,
    Settings,
)
from morag.backend.memory import MemoryBackend
from morag.errors import BadRequest, ReferenceConflict
from morag.format.objects import Unique
from morag.versions.world import World
from tests.rules.operations import (
    Store,
    assert_and_delete_from_old_head,
    conflict_pairs,
    content_id,
    create,
    delete,
    head,
    key,
    messages,
    move,
    namespace,
    outcome,
    put,
    rename,
    table,
    tables,
    update,
    view,
)

if TYPE_CHECKING:
    from morag.model.content import Content
    from morag.model.operations import Operation

OTHER = "11111111-2222-3333-4444-555555555555"


def test_new_content_gets_a_unique_id_that_is_claimed_forever(store: Store) -> None:
    ids = create(store.repo, "main", one="1", two="2")
    assert len(set(ids.values())) == 2
    for id in ids.values():
        claim = Unique("content-id", bytes.fromhex(id.replace("-", "")))
        assert claim.id in store.rows()


def test_an_id_that_is_taken_is_not_generated_again() -> None:
    dice = iter([b"\1" * 16, b"\1" * 16, b"\2" * 16])
    repo = Repository(MemoryBackend(), Settings(), World(new_uuid=lambda: next(dice)))
    assert create(repo, "main", one="1") == {"one": "01010101-0101-0101-0101-010101010101"}
    assert create(repo, "main", two="2") == {"two": "02020202-0202-0202-0202-020202020202"}


@pytest.mark.parametrize("id", [OTHER, "my-own-id", ""])
def test_new_content_must_not_have_an_id(store: Store, id: str) -> None:
    before = store.everything()
    with pytest.raises(BadRequest, match=r"^New value for key 'new' must not have a content ID$"):
        store.repo.commit("main", [put("new", "n", id)], "new")
    assert store.everything() == before


def test_a_copy_must_not_have_the_id_of_another_key(repo: Repository) -> None:
    id = create(repo, "main", t="t")["t"]
    with pytest.raises(BadRequest, match=r"^New value for key 'copy' must not have a content ID$"):
        repo.commit("main", [put("copy", "t", id)], "copy")


def test_the_id_of_deleted_content_cannot_be_reused(repo: Repository) -> None:
    id = create(repo, "main", t="t")["t"]
    repo.commit("main", [delete("t")], "drop")
    with pytest.raises(BadRequest, match=r"^New value for key 'again' must not have a content ID$"):
        repo.commit("main", [put("again", "t", id)], "again")
    assert create(repo, "main", t="t")["t"] != id


@pytest.mark.parametrize("content", [table("x"), view("x"), namespace("t")])
def test_an_update_needs_the_content_id(store: Store, content: Content) -> None:
    create(store.repo, "main", t="t")
    before = store.everything()
    with pytest.raises(
        BadRequest, match=r"^New value to update existing key 't' has no content ID$"
    ):
        store.repo.commit("main", [put("t", content)], "update")
    assert store.everything() == before


@pytest.mark.parametrize("id", [OTHER, ""])
def test_an_update_must_have_the_existing_content_id(store: Store, id: str) -> None:
    id_of_t = create(store.repo, "main", t="t")["t"]
    before = store.everything()
    message = (
        f"Key 't' already exists with content ID {id_of_t}, which is different from the content ID "
        f"{id} in the operation"
    )
    with pytest.raises(BadRequest) as raised:
        store.repo.commit("main", [put("t", "x", id)], "update")
    assert str(raised.value) == message
    assert store.everything() == before


def test_ids_are_compared_case_sensitively(repo: Repository) -> None:
    id = create(repo, "main", t="t")["t"]
    with pytest.raises(BadRequest, match="already exists with content ID"):
        repo.commit("main", [put("t", "x", id.upper())], "update")


@pytest.mark.parametrize("location", ["t", "changed"])
@pytest.mark.parametrize("put_first", [False, True])
def test_a_rename_keeps_the_id(any_repo: Repository, location: str, put_first: bool) -> None:
    id = create(any_repo, "main", t="t")["t"]
    operations = rename("t", "renamed", table(location, id))
    result = any_repo.commit("main", operations[::-1] if put_first else operations, "rename")
    assert result.added == {}
    assert tables(any_repo) == {"renamed": location}
    assert content_id(any_repo, "main", "renamed") == id


def test_a_content_cannot_be_renamed_to_two_keys(store: Store) -> None:
    id = create(store.repo, "main", t="t")["t"]
    before = store.everything()
    operations: list[Operation] = [delete("t"), put("one", "t", id), put("two", "t", id)]
    with pytest.raises(BadRequest, match="content ID"):
        store.repo.commit("main", operations, "split")
    assert store.everything() == before


def test_new_content_under_the_old_key_must_come_before_the_rename(
    store: Store,
) -> None:
    repo = store.repo
    create(repo, "main", old="1")
    away = rename("old", "new", repo.contents.get("main", key("old")))
    before = store.everything()
    with pytest.raises(BadRequest, match="existing key 'old' has no content ID"):
        repo.commit("main", [*away, put("old", "2")], "after")
    assert store.everything() == before
    repo.commit("main", [away[0], put("old", "2"), away[1]], "before")
    assert tables(repo) == {"new": "1", "old": "2"}


def content_under_two_keys(repo: Repository) -> str:
    """Make `dev` with one content under two keys, as a forced merge can; return its id."""
    create(repo, "main", base="0")
    repo.references.create_branch("source", "main")
    id = create(repo, "source", t="1")["t"]
    repo.references.create_branch("dev", "source")
    update(repo, "dev", "t", "2")
    move(repo, "source", "t", "u")
    repo.merge("dev", "source", default=MergeBehavior.FORCE)
    assert (content_id(repo, "source", "t"), content_id(repo, "source", "u")) == (id, id)
    return id


def test_one_content_cannot_be_put_under_two_keys(repo: Repository) -> None:
    id = content_under_two_keys(repo)
    for first, second in (("t", "u"), ("u", "t")):
        with pytest.raises(BadRequest, match=f"^Duplicate content ID: {id} for key: M/{second}/C$"):
            repo.commit("source", [put(first, "3", id), put(second, "4", id)], "both")


@pytest.mark.parametrize("behavior", [MergeBehavior.NORMAL, MergeBehavior.FORCE])
def test_a_merge_of_one_content_under_two_keys_is_refused_before_any_conflict(
    store: Store, behavior: MergeBehavior
) -> None:
    id = content_under_two_keys(store.repo)
    create(store.repo, "main", u="theirs")
    before = store.everything()
    with pytest.raises(BadRequest, match=f"^Duplicate content ID: {id} for key: M/u/C$"):
        store.repo.merge("source", "main", default=behavior)
    assert store.everything() == before


def test_one_of_two_keys_of_a_content_is_merged_if_the_other_is_dropped(repo: Repository) -> None:
    content_under_two_keys(repo)
    repo.merge("source", "main", keys=[MergeKey(key("t"), MergeBehavior.DROP)])
    assert tables(repo) == {"base": "0", "u": "1"}


@pytest.mark.parametrize(("earlier", "later"), [("t", "u"), ("u", "t")])
def test_the_later_of_two_deletes_of_one_content_belongs_to_a_rename(
    repo: Repository, earlier: str, later: str
) -> None:
    renamed: list[Operation] = [
        delete(earlier),
        delete(later),
        put("new", "1", content_under_two_keys(repo)),
    ]
    with pytest.raises(BadRequest, match=f"existing key '{later}' has no content ID"):
        repo.commit("source", [*renamed, put(later, "again")], "under the old key of the rename")
    repo.commit("source", [*renamed, put(earlier, "again")], "under the other deleted key")
    assert tables(repo, "source") == {"base": "0", "new": "1", earlier: "again"}


def test_a_rename_needs_its_delete_in_the_same_commit(repo: Repository) -> None:
    ids = create(repo, "main", t="t", u="u")
    with pytest.raises(BadRequest, match="New value for key 'new' must not have a content ID"):
        repo.commit("main", [delete("u"), put("new", "t", ids["t"])], "rename")


def test_a_rename_to_an_existing_key_is_refused(repo: Repository) -> None:
    ids = create(repo, "main", t="t", u="u")
    with pytest.raises(BadRequest, match="Key 'u' already exists with content ID"):
        repo.commit("main", rename("t", "u", table("t", ids["t"])), "rename")
    assert tables(repo) == {"t": "t", "u": "u"}


def test_a_retried_commit_keeps_its_generated_ids(store: Store) -> None:
    """Two attempts at different heads store one set of values."""
    request = store.repo.commit_request("main", [put("t", "t")], "t")
    first = request.propose(None).result.added
    create(store.repo, "main", other="o")
    assert request.propose(None).result.added == first


# A content keeps its type.

CONTENTS: list[Content] = [
    table("x"),
    view("x"),
    DeltaLakeTable(metadata_location_history=("x",)),
    namespace("t"),
    UDF(sql_text="x"),
]


@pytest.mark.parametrize("after", CONTENTS, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("before", CONTENTS, ids=lambda c: type(c).__name__)
def test_content_does_not_change_its_type(before: Content, after: Content) -> None:
    store = Store()
    repo = store.repo
    id = repo.commit("main", [put("t", before)], "create").added[key("t")]
    with_id = msgspec.structs.replace(after, id=id)
    if type(before) is type(after):
        repo.commit("main", [put("t", with_id)], "update")
        assert repo.contents.get("main", key("t")) == with_id
        return
    stored, kinds = store.everything(), Counter(row.kind for row in store.rows().values())
    for operations in ([put("t", with_id)], rename("t", "renamed", with_id)):
        with pytest.raises(BadRequest, match="which cannot become") as raised:
            repo.commit("main", operations, "change")
        assert "delete it and put the new content without an ID" in str(raised.value)
    assert store.everything() == stored
    assert Counter(row.kind for row in store.rows().values()) == kinds
    assert messages(repo) == ["create"]
    assert [entry.content for entry in repo.contents.entries("main", with_content=True)] == [
        msgspec.structs.replace(before, id=id)
    ]


def test_another_type_is_accepted_with_a_new_id(repo: Repository) -> None:
    id = create(repo, "main", t="t")["t"]
    repo.commit("main", [delete("t"), put("t", view("v"))], "replace")
    now = repo.contents.get("main", key("t"))
    assert type(now).__name__ == "IcebergView"
    assert now.id != id


# Old repositories have ids that are not UUIDs.


@pytest.fixture
def old(store: Store) -> Store:
    create(store.repo, "main", young="y")
    store.plant("main", "t", table("old", "not-a-uuid"))
    return store


def test_old_content_is_read_with_its_id(old: Store) -> None:
    assert old.repo.contents.get("main", key("t")) == table("old", "not-a-uuid")
    ids = {str(e.key): e.content_id for e in old.repo.contents.entries("main")}
    assert ids["t"] == "not-a-uuid"


def test_old_content_is_updated_under_its_id(old: Store) -> None:
    old.repo.commit("main", [put("t", "new", "not-a-uuid")], "update")
    assert old.repo.contents.get("main", key("t")) == table("new", "not-a-uuid")


def test_old_content_is_not_updated_under_another_id(old: Store) -> None:
    message = "Key 't' already exists with content ID not-a-uuid, which is different from"
    for id in (OTHER, "other-old-id"):
        with pytest.raises(BadRequest, match=message):
            old.repo.commit("main", [put("t", "new", id)], "update")
    with pytest.raises(BadRequest, match="New value to update existing key 't' has no content ID"):
        old.repo.commit("main", [put("t", "new")], "update")


def test_old_content_is_renamed_with_its_id(old: Store) -> None:
    old.repo.commit("main", rename("t", "r", table("old", "not-a-uuid")), "rename")
    assert tables(old.repo) == {"r": "old", "young": "y"}
    assert content_id(old.repo, "main", "r") == "not-a-uuid"


def test_old_content_does_not_change_its_type_either(old: Store) -> None:
    with pytest.raises(BadRequest, match="which cannot become ICEBERG_VIEW"):
        old.repo.commit("main", [put("t", view("v", "not-a-uuid"))], "change")


def test_old_content_is_deleted_and_asserted(old: Store) -> None:
    assert_and_delete_from_old_head(old.repo)


def test_an_update_of_old_content_that_was_replaced_conflicts(old: Store) -> None:
    old_head = head(old.repo)
    old.repo.commit("main", [delete("t"), put("t", "again")], "replace")
    with pytest.raises(ReferenceConflict) as raised:
        old.repo.commit("main", [put("t", "mine", "not-a-uuid")], "update", expected=old_head)
    assert conflict_pairs(raised.value.conflicts) == [("CONTENT_ID_DIFFERS", "t")]


@pytest.mark.parametrize("squash", [True, False])
def test_changes_of_old_content_are_merged(old: Store, squash: bool) -> None:
    repo = old.repo
    repo.references.create_branch("dev", "main")
    update(repo, "dev", "t", "new")
    update(repo, "main", "young", "y2")
    assert outcome(repo.merge("dev", "main", squash=squash)) == {"t": "NORMAL"}
    assert repo.contents.get("main", key("t")) == table("new", "not-a-uuid")


def test_old_content_that_both_sides_changed_conflicts(old: Store) -> None:
    repo = old.repo
    repo.references.create_branch("dev", "main")
    update(repo, "dev", "t", "theirs")
    update(repo, "main", "t", "ours")
    result = repo.merge("dev", "main", conflicts_as_result=True)
    assert outcome(result) == {"t": "VALUE_DIFFERS"}
    resolved = MergeKey(
        key("t"), MergeBehavior.NORMAL, table("ours", "not-a-uuid"), table("both", "not-a-uuid")
    )
    repo.merge("dev", "main", keys=[resolved])
    assert tables(repo)["t"] == "both"


@pytest.mark.parametrize("squash", [True, False])
def test_a_rename_of_old_content_is_merged_as_a_rename(old: Store, squash: bool) -> None:
    repo = old.repo
    repo.references.create_branch("dev", "main")
    move(repo, "dev", "t", "r")
    repo.merge("dev", "main", squash=squash)
    assert tables(repo) == {"r": "old", "young": "y"}
    assert content_id(repo, "main", "r") == "not-a-uuid"


def test_a_drop_of_old_content_is_merged_and_transplanted(old: Store) -> None:
    repo = old.repo
    for name in ("dev", "other"):
        repo.references.create_branch(name, "main")
    hash = repo.commit("dev", [delete("t")], "drop").hash
    repo.merge("dev", "main")
    repo.transplant([hash], "other")
    assert tables(repo) == tables(repo, "other") == {"young": "y"}


def test_old_content_is_shown_in_logs_and_differences(old: Store) -> None:
    update(old.repo, "main", "t", "new")
    (entry,) = old.repo.history.log("main", with_operations=True).page(1).items
    assert entry.operations == (Put(key("t"), table("new", "not-a-uuid")),)
    (change,) = old.repo.contents.diff("main~1", "main")
    assert (change.before, change.after) == (
        table("old", "not-a-uuid"),
        table("new", "not-a-uuid"),
    )
    assert old.repo.history.check("main").findings == ()


def test_keys_are_case_sensitive(any_repo: Repository) -> None:
    operations = [put("T", "upper"), put("t", "lower")]
    any_repo.commit("main", operations, CommitMeta(message="case"))
    assert tables(any_repo) == {"T": "upper", "t": "lower"}
    assert list(any_repo.contents.keys("main")) == [ContentKey.of("T"), ContentKey.of("t")]

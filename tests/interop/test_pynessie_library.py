"""pynessie's library: everything that a NessieClient can do."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.interop.pynessie_command import API, errors, key, model, pynessie
from tests.interop.rest import NOTHING, delta, namespace, put, table, view

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.rest import Rest

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

ONE: Final = key("db", "one")
KEYS: Final = [["db"], ["db", "delta"], ["db", "one"], ["db", "view"], ["db", "with.dots"]]


@pytest.fixture
def client(rest: Rest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("NESSIEDIR", str(tmp_path))
    return pynessie.init(config_dict={"endpoint": rest.address + API})


@pytest.fixture
def branch(sample_branch: str) -> str:
    return sample_branch


def test_the_server_names_the_default_branch(client: Any, rest: Rest) -> None:
    assert client.get_base_url() == rest.address + API
    assert client.get_default_branch() == "main"
    assert client.get_reference(None) == client.get_reference("main")


# References


def test_a_branch_starts_at_the_head_of_its_source(client: Any, rest: Rest, branch: str) -> None:
    made = client.create_branch(f"{branch}/dev", branch, rest.head(branch))
    assert made == model.Branch(f"{branch}/dev", rest.head(branch))
    assert client.get_reference(f"{branch}/dev") == made


def test_a_branch_needs_a_source(client: Any, branch: str) -> None:
    for source in (None, branch):
        with pytest.raises(errors.NessieException) as refused:
            client.create_branch(f"{branch}/dev", source)
        assert refused.value.status_code == 400
        assert f"{branch}/dev" not in names(client)


def test_a_tag_can_be_created_moved_and_deleted(client: Any, rest: Rest, branch: str) -> None:
    head, tag = rest.head(branch), f"{branch}/tag"
    first = rest.history(branch)[1]["commitMeta"]["hash"]
    assert client.create_tag(tag, branch, first) == model.Tag(tag, first)
    client.assign_tag(tag, branch)
    assert client.get_reference(tag) == model.Tag(tag, head)
    client.assign_tag(tag, f"{branch}@{first}", old_hash=head)
    assert client.get_reference(tag).hash_ == first
    client.delete_tag(tag, first)
    with pytest.raises(errors.NessieReferenceNotFoundException):
        client.get_reference(tag)


def test_a_branch_can_be_moved_and_deleted(client: Any, rest: Rest, branch: str) -> None:
    head, dev = rest.head(branch), f"{branch}/dev"
    client.create_branch(dev, branch, NOTHING)
    client.assign_branch(dev, branch)
    assert client.get_reference(dev).hash_ == head
    first = rest.history(branch)[1]["commitMeta"]["hash"]
    client.assign_branch(dev, first)  # A hash without a name.
    assert client.get_reference(dev).hash_ == first
    client.delete_branch(dev, first)
    assert dev not in names(client)


def test_a_stale_hash_moves_and_deletes_nothing(client: Any, branch: str) -> None:
    head = client.get_reference(branch).hash_
    with pytest.raises(errors.NessieReferenceConflictException) as refused:
        client.assign_branch(branch, "main", old_hash=NOTHING)
    assert refused.value.status_code == 409
    with pytest.raises(errors.NessieReferenceConflictException) as refused:
        client.delete_branch(branch, NOTHING)
    assert refused.value.status_code == 409
    assert client.get_reference(branch).hash_ == head


def test_a_name_can_be_used_once(client: Any, branch: str) -> None:
    with pytest.raises(errors.NessieReferenceAlreadyExistsException) as refused:
        client.create_tag(branch, "main", NOTHING)
    assert refused.value.error_code == "REFERENCE_ALREADY_EXISTS"
    assert refused.value.server_status == 409


def test_the_default_branch_cannot_be_deleted(client: Any) -> None:
    with pytest.raises(errors.NessieException) as refused:
        client.delete_branch("main", client.get_reference("main").hash_)
    assert refused.value.status_code == 400


def test_references_are_listed_with_their_metadata(client: Any, rest: Rest, branch: str) -> None:
    client.create_tag(f"{branch}/tag", branch, rest.head(branch))
    assert {"main", branch, f"{branch}/tag"} <= names(client)
    found = {it.name: it for it in client.list_references(fetch_all=True).references}
    about = found[branch].metadata
    assert about.commit_meta_of_head.message == "second"
    assert about.commit_meta_of_head.hash_ == rest.head(branch)
    assert (about.num_commits_ahead, about.num_total_commits) == (2, 2)
    assert isinstance(found[f"{branch}/tag"], model.Tag)
    assert found[f"{branch}/tag"].metadata.num_total_commits == 2


# Content


def test_every_kind_of_content_can_be_read(client: Any, branch: str) -> None:
    def found(*elements: str) -> dict[str, Any]:
        content: dict[str, Any] = model.ContentSchema().dump(
            client.get_content(branch, key(*elements))
        )
        uuid.UUID(content.pop("id"))
        return content

    assert found("db") == {**namespace("db"), "elements": ["db"]}
    assert found("db", "one") == table(1)
    assert found("db", "view") == view(1)
    assert found("db", "delta") == delta(1)
    assert found("db", "with.dots") == table(2)


def test_content_can_be_read_at_an_old_commit(client: Any, rest: Rest, branch: str) -> None:
    before, old = rest.head(branch), client.get_content(branch, ONE)
    update(client, branch, snapshot=7)
    assert client.get_content(branch, ONE).snapshot_id == 7
    assert client.get_content(branch, ONE, before) == old
    assert client.get_content(f"{branch}@{before}", ONE) == old
    assert client.get_content(before, ONE) == old


def test_absent_content_has_its_own_error(client: Any, branch: str) -> None:
    with pytest.raises(errors.NessieContentNotFoundException) as refused:
        client.get_content(branch, key("db", "none"))
    assert refused.value.status_code == 404
    with pytest.raises(errors.NessieReferenceNotFoundException):
        client.get_content(f"{branch}/none", ONE)


def test_keys_are_listed_filtered_and_paged(client: Any, rest: Rest, branch: str) -> None:
    first = rest.history(branch)[1]["commitMeta"]["hash"]
    assert listed(client.list_keys(branch)) == KEYS
    assert listed(client.list_keys(branch, first)) == [["db"], ["db", "one"]]
    tables = client.list_keys(branch, query_filter="entry.contentType == 'ICEBERG_TABLE'")
    assert listed(tables) == [["db", "one"], ["db", "with.dots"]]
    paged, token = [], None
    while True:
        page = client.list_keys(branch, max_result_hint=2, page_token=token)
        assert len(page.entries) <= 2
        paged += listed(page)
        if not page.has_more:
            break
        token = page.token
    assert paged == KEYS


# Commits


def test_a_commit_updates_deletes_and_leaves_unchanged(
    client: Any, rest: Rest, branch: str
) -> None:
    old = client.get_content(branch, ONE)
    new = model.IcebergTable(old.id, "file:/new", 8, 1, 2, 3)
    done = client.commit(
        branch,
        rest.head(branch),
        "the reason",
        "Ann <ann@x.org>",
        model.Put(ONE, new),
        model.Delete(key("db", "with.dots")),
        model.Unchanged(key("db", "view")),
    )
    assert done == model.Branch(branch, rest.head(branch))
    assert client.get_content(branch, ONE) == new
    assert ["db", "with.dots"] not in listed(client.list_keys(branch))
    about = next(client.get_log(branch)).commit_meta
    assert (about.message, about.author, about.committer) == ("the reason", "Ann <ann@x.org>", "")


def test_new_content_gets_its_id_from_the_server(client: Any, rest: Rest, branch: str) -> None:
    new = model.IcebergTable(None, "file:/new", 1, 0, 0, 0)
    client.commit(branch, rest.head(branch), "new", None, model.Put(key("new"), new))
    assert client.get_content(branch, key("new")).id


def test_new_content_must_not_have_an_id(client: Any, rest: Rest, branch: str) -> None:
    head, new = rest.head(branch), model.IcebergTable(str(uuid.uuid4()), "file:/new", 1, 0, 0, 0)
    with pytest.raises(errors.NessieException) as refused:
        client.commit(branch, head, "new", None, model.Put(key("new"), new))
    assert (refused.value.status_code, refused.value.error_code) == (400, "BAD_REQUEST")
    assert rest.head(branch) == head


def test_a_commit_on_a_changed_key_conflicts(client: Any, rest: Rest, branch: str) -> None:
    before = rest.head(branch)
    update(client, branch, snapshot=2)
    after = rest.head(branch)
    with pytest.raises(errors.NessieReferenceConflictException) as refused:
        update(client, branch, snapshot=3, at=before)
    assert refused.value.status_code == 409
    assert "db.one" in refused.value.server_message
    assert rest.head(branch) == after


def test_a_commit_on_another_key_is_rebased(client: Any, rest: Rest, branch: str) -> None:
    before = rest.head(branch)
    update(client, branch, snapshot=2)
    client.commit(branch, before, "drop", None, model.Delete(key("db", "view")))
    assert client.get_content(branch, ONE).snapshot_id == 2
    assert ["db", "view"] not in listed(client.list_keys(branch))


def test_an_update_may_name_the_replaced_content(client: Any, rest: Rest, branch: str) -> None:
    old = client.get_content(branch, ONE)
    new = model.IcebergTable(old.id, "file:/new", 8, 0, 0, 0)
    client.commit(branch, rest.head(branch), "replace", None, model.Put(ONE, new, old))
    assert client.get_content(branch, ONE) == new


# History


def test_the_log_runs_from_the_newest_commit_to_the_oldest(client: Any, branch: str) -> None:
    log = list(client.get_log(branch))
    assert messages(log) == ["second", "first"]
    assert log[0].commit_meta.hash_ == client.get_reference(branch).hash_
    assert all(it.operations is None for it in log)
    assert all(it.commit_meta.commitTime.tzinfo for it in log)


def test_the_log_has_operations_on_request(client: Any, branch: str) -> None:
    second, first = client.get_log(branch, fetch_all=True)
    assert [op.key.elements for op in first.operations] == KEYS[0:1] + KEYS[2:3]
    assert all(isinstance(op, model.Put) for op in second.operations)
    assert first.parent_commit_hash == NOTHING
    assert second.parent_commit_hash == first.commit_meta.hash_


def test_a_long_log_is_read_in_pages(client: Any, rest: Rest, branch: str) -> None:
    for n in range(5):
        update(client, branch, snapshot=10 + n)
    assert messages(client.get_log(branch, max_records=3)) == ["set 14", "set 13", "set 12"]
    every = [*(f"set {n}" for n in range(14, 9, -1)), "second", "first"]
    # The client requests this many per page and stops there, but continues with a given token.
    token = rest.history(branch)[3]["commitMeta"]["hash"]
    assert messages(client.get_log(branch, pageToken=token)) == every[3:]
    assert messages(client.get_log(branch)) == every


def test_more_than_a_page_of_log_is_fetched_to_its_end(
    client: Any, rest: Rest, branch: str
) -> None:
    """The server gives 250 commits at a time, and the client follows the tokens."""
    id = client.get_content(branch, ONE).id
    for n in range(255):
        rest.commit(branch, f"set {n}", [put("db", "one", content={**table(n), "id": id})])
    log = messages(client.get_log(branch))
    assert log == [*(f"set {n}" for n in range(254, -1, -1)), "second", "first"]


def test_the_log_can_be_filtered_and_cut(client: Any, rest: Rest, branch: str) -> None:
    second, first = [it["commitMeta"]["hash"] for it in rest.history(branch)]
    assert messages(client.get_log(branch, filter="commit.message.startsWith('f')")) == ["first"]
    assert messages(client.get_log(branch, endHash=first)) == ["first"]
    assert messages(client.get_log(branch, startHash=first)) == ["second", "first"]
    assert messages(client.get_log(branch, startHash=second)) == ["second"]


# Merge, cherry-pick, diff


def test_a_merge_applies_the_changes(client: Any, rest: Rest, branch: str) -> None:
    base, dev = rest.head(branch), fork(client, branch)
    update(client, dev, snapshot=5)
    drop(client, dev, "view")
    done = client.merge(dev, branch)
    assert (done.was_applied, done.was_successful) == (True, True)
    assert (done.target_branch, done.common_ancestor) == (branch, base)
    assert (done.effective_target_hash, done.expected_hash) == (base, base)
    assert done.resultant_target_hash == rest.head(branch) != base
    details = [(it.key.elements, it.merge_behaviour, it.conflict_type) for it in done.details]
    assert sorted(details) == [
        (["db", "one"], "NORMAL", "NONE"),
        (["db", "view"], "NORMAL", "NONE"),
    ]
    assert client.get_content(branch, ONE).snapshot_id == 5
    assert len(list(client.get_log(branch))) == 3


def test_a_merge_can_stop_short_of_the_head(client: Any, rest: Rest, branch: str) -> None:
    dev = fork(client, branch)
    halfway = update(client, dev, snapshot=5)
    update(client, dev, snapshot=6)
    client.merge(f"{dev}@{halfway}", f"{branch}@{rest.head(branch)}")
    assert client.get_content(branch, ONE).snapshot_id == 5


def test_a_second_merge_finds_nothing_to_do(client: Any, rest: Rest, branch: str) -> None:
    dev = fork(client, branch)
    update(client, dev, snapshot=5)
    client.merge(dev, branch)
    head = rest.head(branch)
    again = client.merge(dev, branch)
    assert (again.was_applied, again.was_successful) == (False, True)
    assert again.resultant_target_hash == rest.head(branch) == head


def test_a_merge_conflicts_if_both_sides_changed_a_key(
    client: Any, rest: Rest, branch: str
) -> None:
    dev = fork(client, branch)
    update(client, dev, snapshot=5)
    head = update(client, branch, snapshot=6)
    with pytest.raises(errors.NessieReferenceConflictException) as refused:
        client.merge(dev, branch)
    assert "db.one" in refused.value.server_message
    assert rest.head(branch) == head


def test_branches_without_a_common_ancestor_cannot_be_merged(client: Any, branch: str) -> None:
    client.create_branch(f"{branch}/none", branch, NOTHING)
    with pytest.raises(errors.NessieReferenceNotFoundException) as refused:
        client.merge(branch, f"{branch}/none")
    assert "No common ancestor" in refused.value.server_message


def test_commits_can_be_picked(client: Any, rest: Rest, branch: str) -> None:
    base, dev = rest.head(branch), fork(client, branch)
    picked = [update(client, dev, snapshot=5), drop(client, dev, "view")]
    update(client, dev, snapshot=6)
    done = client.cherry_pick(branch, dev, None, *picked)
    assert done.was_applied
    assert done.common_ancestor is None
    assert done.effective_target_hash == base
    assert done.resultant_target_hash == rest.head(branch)
    assert messages(client.get_log(branch))[:2] == ["drop view", "set 5"]
    assert client.get_content(branch, ONE).snapshot_id == 5


def test_commits_are_picked_in_their_order(client: Any, rest: Rest, branch: str) -> None:
    head, dev = rest.head(branch), fork(client, branch)
    older, newer = update(client, dev, snapshot=5), update(client, dev, snapshot=6)
    with pytest.raises(errors.NessieException) as refused:
        client.cherry_pick(branch, dev, head, newer, older)
    assert refused.value.status_code == 400
    assert rest.head(branch) == head


def test_a_picked_commit_can_conflict(client: Any, rest: Rest, branch: str) -> None:
    dev = fork(client, branch)
    picked = update(client, dev, snapshot=5)
    head = update(client, branch, snapshot=6)
    with pytest.raises(errors.NessieReferenceConflictException):
        client.cherry_pick(branch, dev, head, picked)
    assert rest.head(branch) == head


def test_a_diff_has_both_sides(client: Any, rest: Rest, branch: str) -> None:
    before, dev = rest.head(branch), fork(client, branch)
    update(client, dev, snapshot=5)
    drop(client, dev, "view")
    changed, dropped = client.get_diff(branch, dev).diffs
    assert changed.content_key == ONE
    assert (changed.from_content.snapshot_id, changed.to_content.snapshot_id) == (1, 5)
    assert dropped.content_key.elements == ["db", "view"]
    assert dropped.to_content is None
    assert client.get_diff(dev, dev).diffs == []
    assert client.get_diff(dev, branch, before, before).diffs == []
    assert len(client.get_diff("DETACHED", dev, before).diffs) == 2


# Helpers


def update(client: Any, branch: str, snapshot: int, at: str | None = None) -> str:
    """Set the snapshot of `db.one` in a commit; returns its hash."""
    old = client.get_content(branch, ONE)
    new = model.IcebergTable(old.id, f"file:/{snapshot}", snapshot, 0, 0, 0)
    at = at or client.get_reference(branch).hash_
    done = client.commit(branch, at, f"set {snapshot}", None, model.Put(ONE, new))
    return str(done.hash_)


def drop(client: Any, branch: str, name: str) -> str:
    head = client.get_reference(branch).hash_
    delete = model.Delete(key("db", name))
    return str(client.commit(branch, head, f"drop {name}", None, delete).hash_)


def fork(client: Any, branch: str) -> str:
    head = client.get_reference(branch).hash_
    return str(client.create_branch(f"{branch}/dev", branch, head).name)


def names(client: Any) -> set[str]:
    return {reference.name for reference in client.list_references().references}


def listed(entries: Any) -> list[list[str]]:
    return [entry.name.elements for entry in entries.entries]


def messages(log: Any) -> list[str]:
    return [entry.commit_meta.message for entry in log]

"""Legacy entries: their payload is zero, and only the value determines the content type.

The payload stays zero when the content changes. Nessie compares the payloads of entries, and reads
a value by the value's own payload, so either both are zero or neither is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag import MergeBehavior, MergeKey, Put
from morag.errors import BadRequest, ReferenceConflict
from morag.format.content_values import value_of_content
from morag.format.index_entries import payload_of, value_of
from morag.format.objects import Value
from morag.index.keys import store_key
from morag.index.layered import index_of
from morag.logic import history
from morag.logic.commits import Add, Draft, build_commit
from morag.model.names import full_name
from tests.rules.operations import (
    Store,
    assert_and_delete_from_old_head,
    conflict_pairs,
    create,
    delete,
    key,
    move,
    namespace,
    outcome,
    put,
    rename,
    tables,
    update,
    view,
)
from tests.rules.operations import table as table_at

if TYPE_CHECKING:
    from morag.model.content import Content, IcebergTable

ID = "01234567-89ab-cdef-0123-456789abcdef"
NAMESPACE_ID = "11111111-89ab-cdef-0123-456789abcdef"


def table(location: str) -> IcebergTable:
    return table_at(location, ID)


def plant(store: Store, branch: str, dotted: str, content: Content) -> None:
    """Commit content in the old form: without a payload in entry and value."""
    ref = store.persist.ref(full_name("BRANCH", branch))
    assert ref is not None and content.id is not None
    known = value_of_content(content)
    value = Value(known.content_id, 0, known.data)
    id = bytes.fromhex(content.id.replace("-", ""))
    parent = history.head_commit(store.persist, ref.pointer)
    draft = Draft(message="legacy", adds=[Add(store_key(key(dotted)), 0, value.id, id)])
    built = build_commit(store.persist, parent, draft)
    assert store.persist.publish([value, built.commit], ref, built.commit.id) is not None


def payloads(store: Store, branch: str, dotted: str) -> tuple[int, int]:
    """The payloads of the entry and of the value."""
    ref = store.persist.ref(full_name("BRANCH", branch))
    assert ref is not None
    op = index_of(store.persist, history.head_commit(store.persist, ref.pointer)).get(
        store_key(key(dotted))
    )
    assert op is not None
    return payload_of(op), store.persist.fetch(Value, value_of(op)).payload


@pytest.fixture
def old(store: Store) -> Store:
    create(store.repo, "main", young="y")
    plant(store, "main", "t", table("old"))
    assert payloads(store, "main", "t") == (0, 0)
    return store


@pytest.mark.parametrize("with_content", [False, True])
def test_a_legacy_entry_is_listed_with_its_type(old: Store, with_content: bool) -> None:
    plant(old, "main", "v", view("v", NAMESPACE_ID))
    entries = old.repo.contents.entries("main", with_content=with_content)
    assert {str(e.key): (e.type, e.content_id) for e in entries if str(e.key) != "young"} == {
        "t": ("ICEBERG_TABLE", ID),
        "v": ("ICEBERG_VIEW", NAMESPACE_ID),
    }


def test_an_update_keeps_the_zero_payload(old: Store) -> None:
    old.repo.commit("main", [put("t", table("new"))], "update")
    assert old.repo.contents.get("main", key("t")) == table("new")
    assert payloads(old, "main", "t") == (0, 0)
    assert payloads(old, "main", "young") == (1, 1)


def test_an_update_may_have_an_expected_content(old: Store) -> None:
    old.repo.commit("main", [Put(key("t"), table("new"), table("old"))], "update")
    with pytest.raises(ReferenceConflict) as raised:
        old.repo.commit("main", [Put(key("t"), table("more"), table("old"))], "update")
    assert conflict_pairs(raised.value.conflicts) == [("VALUE_DIFFERS", "t")]


def test_legacy_content_does_not_change_its_type(old: Store) -> None:
    message = "holds content of type ICEBERG_TABLE, which cannot become ICEBERG_VIEW"
    changed = view("v", ID)
    for operations in ([put("t", changed)], rename("t", "r", changed)):
        with pytest.raises(BadRequest, match=message):
            old.repo.commit("main", operations, "change")


def test_a_rename_keeps_the_zero_payload(old: Store) -> None:
    move(old.repo, "main", "t", "r", "moved")
    assert tables(old.repo) == {"r": "moved", "young": "y"}
    assert payloads(old, "main", "r") == (0, 0)


def test_legacy_content_is_asserted_and_deleted(old: Store) -> None:
    assert_and_delete_from_old_head(old.repo)


def test_a_legacy_namespace_must_be_empty_to_be_deleted(old: Store) -> None:
    plant(old, "main", "ns", namespace("ns", NAMESPACE_ID))
    plant(old, "main", "ns.t", table_at("inside", "22222222-89ab-cdef-0123-456789abcdef"))
    with pytest.raises(ReferenceConflict, match="Namespace 'ns' is not empty"):
        old.repo.commit("main", [delete("ns")], "drop")
    old.repo.commit("main", [delete("ns"), delete("ns.t")], "drop both")
    assert tables(old.repo) == {"t": "old", "young": "y"}


@pytest.mark.parametrize("how", ["squash", "replay", "transplant"])
def test_changes_of_legacy_content_are_merged_and_transplanted(old: Store, how: str) -> None:
    repo = old.repo
    plant(old, "main", "moving", table_at("m", NAMESPACE_ID))
    repo.references.create_branch("dev", "main")
    hashes = [update(repo, "dev", "t", "new"), move(repo, "dev", "moving", "moved")]
    update(repo, "main", "young", "y2")
    if how == "transplant":
        result = repo.transplant(hashes, "main")
    else:
        result = repo.merge("dev", "main", squash=how == "squash")
    assert outcome(result) == dict.fromkeys(("t", "moving", "moved"), "NORMAL")
    assert tables(repo) == {"moved": "m", "t": "new", "young": "y2"}
    assert payloads(old, "main", "t") == payloads(old, "main", "moved") == (0, 0)
    assert repo.history.check("main").findings == ()


def test_a_conflict_over_legacy_content_is_resolved(old: Store) -> None:
    repo = old.repo
    repo.references.create_branch("dev", "main")
    update(repo, "dev", "t", "from_source")
    update(repo, "main", "t", "ours")
    result = repo.merge("dev", "main", conflicts_as_result=True)
    assert outcome(result) == {"t": "VALUE_DIFFERS"}
    rule = MergeKey(key("t"), MergeBehavior.NORMAL, table("ours"), table("both"))
    repo.merge("dev", "main", keys=[rule])
    assert tables(repo)["t"] == "both"
    assert payloads(old, "main", "t") == (0, 0)


def test_a_resolution_for_deleted_legacy_content_conflicts(old: Store) -> None:
    repo = old.repo
    repo.references.create_branch("dev", "main")
    update(repo, "dev", "t", "from_source")
    repo.commit("main", [delete("t")], "drop")
    rule = MergeKey(key("t"), MergeBehavior.NORMAL, table("old"), table("both"))
    result = repo.merge("dev", "main", keys=[rule], conflicts_as_result=True)
    assert outcome(result) == {"t": "KEY_DOES_NOT_EXIST"}


@pytest.mark.parametrize("squash", [True, False])
def test_a_legacy_namespace_created_on_both_branches_gets_the_id_of_the_source(
    old: Store, squash: bool
) -> None:
    repo = old.repo
    repo.references.create_branch("dev", "main")
    from_source = namespace("ns", NAMESPACE_ID)
    plant(old, "dev", "ns", from_source)
    repo.commit("main", [put("ns", namespace("ns"))], "ours")
    repo.merge("dev", "main", squash=squash)
    assert repo.contents.get("main", key("ns")) == from_source

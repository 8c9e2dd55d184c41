"""Morag reads from Nessie's rows the same data that Nessie's REST API returned."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from morag.config import Settings
from morag.format.commit_headers import meta_of
from morag.format.content_values import content_of_value
from morag.format.ids import NO_ANCESTOR
from morag.format.index_entries import REMOVE, content_id_of, payload_of, value_of
from morag.format.objects import Commit, Value
from morag.index.keys import CONTENTS, content_key, key_text
from morag.index.layered import index_of
from morag.model.content import TYPE_NAMES
from morag.model.operations import Delete, Put
from tests.format import golden

if TYPE_CHECKING:
    from morag.index.layered import CommitIndex
    from morag.persist.persist import Persist


@pytest.fixture(scope="module")
def persist() -> Persist:
    return golden.store(Settings())


def head_of(persist: Persist, name: str) -> Commit | None:
    ref = persist.ref(name)
    assert ref is not None
    return None if ref.pointer == NO_ANCESTOR else persist.fetch(Commit, ref.pointer)


def index_at(persist: Persist, name: str) -> CommitIndex:
    return index_of(persist, head_of(persist, name))


def test_references_are_the_keys_of_the_internal_reference(persist: Persist) -> None:
    names = [key_text(key) for key, _ in index_at(persist, "int/refs").items()]
    assert set(names) == {name for name in golden.refs() if not name.startswith("int/")}
    shown = [name for name in names if name.startswith("refs/")]
    assert sorted(shown) == sorted(ref.row_name for ref in golden.api().references)
    for reference in golden.api().references:
        assert golden.refs()[reference.row_name].pointer.hex() == reference.hash


def test_entries_have_the_same_order_and_content(persist: Persist) -> None:
    compared = 0
    for reference in golden.api().references:
        found = []
        for key, op in index_at(persist, reference.row_name).items(CONTENTS):
            name = content_key(key)
            assert name is not None
            found.append(
                golden.Entry(
                    type=TYPE_NAMES[payload_of(op)],
                    name=name,
                    content_id=str(UUID(bytes=content_id_of(op))),
                    content=content_of_value(persist.fetch(Value, value_of(op))),
                )
            )
        assert found == golden.api().entries_of(reference.name)
        compared += len(found)
    assert compared == 1218


def test_the_chain_of_parents_is_the_log(persist: Persist) -> None:
    for reference in golden.api().references:
        chain = []
        commit = head_of(persist, reference.row_name)
        while commit is not None:
            chain.append(commit.id.hex())
            commit = golden.parent_of(commit)
        assert chain == golden.api().log_of(reference.name)


def test_headers_are_the_commit_meta_of_the_log() -> None:
    commits = {id.hex(): commit for id, commit in golden.of_kind(Commit).items()}
    assert len(golden.api().log_entries) == 277
    for hash, entry in golden.api().log_entries.items():
        assert meta_of(commits[hash]) == entry.commit_meta


def test_operations_are_those_of_the_log(persist: Persist) -> None:
    commits = {id.hex(): commit for id, commit in golden.of_kind(Commit).items()}
    for hash, entry in golden.api().log_entries.items():
        operations = index_of(persist, commits[hash]).operations()
        found = [operation_of(persist, key, op) for key, op in operations]
        # A log lists removes first, then puts, each in key order.
        found.sort(key=lambda operation: isinstance(operation, Put))
        assert found == (entry.operations or [])


def operation_of(persist: Persist, key: bytes, op: bytes) -> Put | Delete:
    name = content_key(key)
    assert name is not None
    if op[:1] == REMOVE:
        return Delete(name)
    return Put(name, content_of_value(persist.fetch(Value, value_of(op))))

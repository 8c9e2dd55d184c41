"""The rules of namespaces: they must exist before their content, and be empty when deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.errors import ReferenceConflict
from morag.index.keys import content_key, contents_range, store_key
from morag.model.conflicts import Conflict, ConflictType
from morag.model.content import NAMESPACE_PAYLOAD
from morag.versions.entries import type_payload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from morag.index.layered import CommitIndex
    from morag.model.keys import ContentKey
    from morag.persist.persist import Persist


def check_namespaces(
    persist: Persist,
    head: CommitIndex,
    created: Mapping[ContentKey, int],
    deleted: Mapping[ContentKey, int],
) -> None:
    """The mappings hold the payloads of the keys that a commit creates and deletes."""
    if not created and not deleted:
        return
    conflicts = dict.fromkeys((*_absent(persist, head, created), *_not_empty(head, deleted)))
    if conflicts:
        raise ReferenceConflict.of(list(conflicts))


def _absent(
    persist: Persist, head: CommitIndex, created: Mapping[ContentKey, int]
) -> Iterator[Conflict]:
    parents = dict.fromkeys(key.parent for key in created if len(key.elements) > 1)
    for parent in parents:
        if created.get(parent) == NAMESPACE_PAYLOAD:
            continue
        key, op = parent, head.get(store_key(parent))
        while op is None:
            yield Conflict(ConflictType.NAMESPACE_ABSENT, key, f"namespace '{key}' must exist")
            if len(key.elements) == 1:
                break
            key = key.parent
            op = head.get(store_key(key))
        if op is not None and type_payload(persist, op) != NAMESPACE_PAYLOAD:
            yield Conflict(
                ConflictType.NOT_A_NAMESPACE,
                key,
                f"expecting the key '{key}' to be a namespace, but is not a namespace (using a "
                "content object that is not a namespace as a namespace is forbidden)",
            )


def _not_empty(head: CommitIndex, deleted: Mapping[ContentKey, int]) -> Iterator[Conflict]:
    for key, payload in deleted.items():
        if payload != NAMESPACE_PAYLOAD:
            continue
        inside = (content_key(k) for k, _ in head.items(contents_range(prefix=key)))
        if any(child != key and child not in deleted for child in inside):
            yield Conflict(ConflictType.NAMESPACE_NOT_EMPTY, key, f"namespace '{key}' is not empty")

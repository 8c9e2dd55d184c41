"""Commit requests: a client's operations, checked once and applied to the current head."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from morag.errors import BadRequest, ReferenceNotFound
from morag.format.commit_headers import headers_of
from morag.format.content_values import LEGACY_PAYLOAD, value_of_content
from morag.format.ids import NO_ANCESTOR, uuid_text
from morag.format.index_entries import content_id_of, parts_of, payload_of, value_of
from morag.format.objects import CONTENT_ID_SPACE, Unique
from morag.index.keys import store_key
from morag.index.layered import index_of
from morag.index.spill import ENTRY_BYTES
from morag.logic import history
from morag.logic.commits import Add, CommitConflicts, Draft, Remove, Unmoved, build_commit
from morag.logic.reflog import RefOperation
from morag.model.content import PAYLOADS, TYPE_NAMES, check_content
from morag.model.keys import ContentKey, check_key
from morag.model.operations import Delete, Put, Unchanged
from morag.model.results import CommitResult
from morag.versions.entries import (
    check_ids,
    content_id_text,
    is_legacy,
    reference_conflict,
    type_payload,
)
from morag.versions.namespaces import check_namespaces
from morag.versions.tickets import Proposal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from morag.format.objects import Commit, Obj
    from morag.format.records import ObjId
    from morag.index.layered import CommitIndex
    from morag.logic.commits import KeyConflict
    from morag.model.content import Content
    from morag.model.meta import CommitMeta
    from morag.model.operations import Operation
    from morag.persist.persist import Persist


NEAR_COMMITS: Final = 400
"""A walk of this length reads 20 commits."""


_OPERATION_BYTES: Final = 4096
"""More than nearly all operations have, so that only large contents weigh more."""


class CommitRequest:
    """A commit that is validated once and built again for every head that it is tried on.

    It keeps the content ids that it generated, so that a retry stores no second set of values.
    """

    operation: ClassVar = RefOperation.COMMIT
    shares_batch: ClassVar = True

    def __init__(
        self,
        persist: Persist,
        branch: str,
        operations: Sequence[Operation],
        meta: CommitMeta,
        expected: ObjId | None,
        new_uuid: Callable[[], bytes],
        *,
        keep_types: bool = False,
    ) -> None:
        self._persist = persist
        self._keep_types = keep_types
        self.branch = branch
        self.who = meta.committer or ""
        self._headers = headers_of(meta)
        self._message = meta.message
        self._expected = expected
        self._new_uuid = new_uuid
        self._operations = checked(operations)
        self.operations = len(operations)
        self._generated_ids: dict[ContentKey, bytes] = {}

    def weigh(self, size_bytes: int) -> None:
        """Count a commit of this size as more operations if its contents are large."""
        self.operations = max(self.operations, size_bytes // _OPERATION_BYTES)

    def propose(self, head: Commit | None) -> Proposal:
        expected_index = self._expected_index(head)
        expected = expected_index.get_all([key for key, _ in self._operations])
        changes = _EntryChanges(self._persist, expected, self._generated_id)
        for key, operation in self._operations:
            if isinstance(operation, Delete):
                changes.delete(key, operation)
        for key, operation in self._operations:
            if isinstance(operation, Put):
                changes.put(key, operation)
            elif isinstance(operation, Unchanged) and self._expected not in (None, _id(head)):
                changes.unchanged(key)
        head_index = index_of(self._persist, head)
        if self._persist.settings.namespace_validation:
            check_namespaces(self._persist, head_index, changes.created, changes.deleted)
        check_ids(changes.adds)
        draft = Draft(
            message=self._message,
            headers=self._headers,
            removes=changes.removes,
            unmoved=changes.unmoved,
            adds=changes.adds,
        )
        try:
            at_head = expected if expected_index is head_index else None
            built = build_commit(self._persist, head, draft, at_parent=at_head)
        except CommitConflicts as found:
            raise reference_conflict(self._in_order(found.conflicts)) from None
        if self._keep_types:
            changes.check_types_kept()
        uniques = [Unique(CONTENT_ID_SPACE, id) for id in changes.generated_ids.values()]
        objects: list[Obj] = [*uniques, *changes.values, *built.indexes, built.commit]
        added = {key: uuid_text(id) for key, id in changes.generated_ids.items()}
        return Proposal((built.commit,), objects, CommitResult(built.commit.id.hex(), added))

    @property
    def index_bytes(self) -> int:
        return sum(len(key) + ENTRY_BYTES for key, _ in self._operations)

    def is_brief_on(self, head: Commit | None) -> bool:
        return is_expected_near(self._persist, head, self._expected)

    def forget(self, taken: frozenset[ObjId]) -> None:
        """Generate new content ids, because other content already has one of them."""
        self._generated_ids = {
            key: id
            for key, id in self._generated_ids.items()
            if Unique(CONTENT_ID_SPACE, id).id not in taken
        }

    def _in_order(self, conflicts: Sequence[KeyConflict]) -> list[KeyConflict]:
        """The conflicts in the order deletes, unchanged, puts, each in the client's order.

        A key that is deleted and put again counts as a delete.
        """
        groups: tuple[type[Operation], ...] = (Delete, Unchanged, Put)
        order: dict[bytes, tuple[int, int]] = {}
        for at, (key, operation) in enumerate(self._operations):
            order.setdefault(key, (groups.index(type(operation)), at))
        return sorted(conflicts, key=lambda conflict: order[conflict.key])

    def _generated_id(self, key: ContentKey) -> bytes:
        id = self._generated_ids.get(key)
        if id is None:
            id = self._generated_ids[key] = self._new_uuid()
        return id

    def _expected_index(self, head: Commit | None) -> CommitIndex:
        """The state at the expected hash, which must be on the branch."""
        if self._expected is None or self._expected == _id(head):
            return index_of(self._persist, head)
        expected = expected_commit(self._persist, self.branch, head, self._expected)
        return index_of(self._persist, expected)


def expected_commit(
    persist: Persist, branch: str, head: Commit | None, expected: ObjId
) -> Commit | None:
    """The commit that a client expects on the branch. None is the empty state."""
    if expected == _id(head):
        return head
    if expected == NO_ANCESTOR:
        return None
    try:
        commit = history.find_commit(persist, expected)
    except ReferenceNotFound:
        commit = None
    if commit is None or not history.is_first_ancestor(persist, head, commit):
        raise ReferenceNotFound.commit_on(branch, expected.hex())
    return commit


def is_expected_near(persist: Persist, head: Commit | None, expected: ObjId | None) -> bool:
    """Whether `expected_commit` finds its answer without a walk along a long history."""
    if head is None or expected in (None, NO_ANCESTOR, head.id) or expected in head.tail:
        return True
    try:
        commit = history.find_commit(persist, expected)
    except Exception:  # noqa: BLE001 - Only this request fails, when `propose` finds the same.
        return True
    return commit is None or head.seq - commit.seq <= NEAR_COMMITS


def checked(operations: Sequence[Operation]) -> list[tuple[bytes, Operation]]:
    """The operations with their store keys. Refuses operations that are wrong on any head."""
    if not operations:
        raise BadRequest("A commit needs at least one operation")
    found: list[tuple[bytes, Operation]] = []
    seen: dict[bytes, Operation] = {}
    for operation in operations:
        if isinstance(operation, Put):
            check_key(operation.key)
            check_content(operation.content)
            if operation.expected_content is not None:
                check_content(operation.expected_content)
        elif isinstance(operation, Delete | Unchanged):
            check_key(operation.key)
        else:
            raise BadRequest(f"{operation!r} is not an operation; use Put, Delete or Unchanged")
        key = store_key(operation.key)
        before = seen.get(key)
        if before is not None and not (
            isinstance(before, Delete)
            and isinstance(operation, Put)
            and operation.content.id is None
        ):
            raise BadRequest(f"Duplicate key in commit operations: {operation.key}")
        seen[key] = operation
        found.append((key, operation))
    return found


class _EntryChanges:
    """The operations as changes of index entries, relative to the client's expected state."""

    def __init__(
        self,
        persist: Persist,
        expected: Mapping[bytes, bytes],
        generated_id: Callable[[ContentKey], bytes],
    ) -> None:
        self._persist = persist
        self._expected = expected
        self._generated_id = generated_id
        self._deleted_ids: dict[str, tuple[ContentKey, bytes]] = {}
        self._free: set[ContentKey] = set()
        self.removes: list[Remove] = []
        self.unmoved: list[Unmoved] = []
        self.adds: list[Add] = []
        self.values: list[Obj] = []
        self.generated_ids: dict[ContentKey, bytes] = {}
        self.created: dict[ContentKey, int] = {}
        self.deleted: dict[ContentKey, int] = {}

    def delete(self, key: bytes, operation: Delete) -> None:
        op = self._expected.get(key)
        if op is None:
            self.removes.append(Remove(key, 0, NO_ANCESTOR))
            return
        self._deleted_ids[content_id_text(self._persist, op)] = operation.key, op
        self._free.add(operation.key)
        self.deleted[operation.key] = type_payload(self._persist, op)
        self.removes.append(Remove(key, payload_of(op), value_of(op), content_id_of(op)))

    def unchanged(self, key: bytes) -> None:
        op = self._expected.get(key)
        if op is None:
            self.unmoved.append(Unmoved(key, 0, NO_ANCESTOR))
        else:
            self.unmoved.append(Unmoved(key, payload_of(op), value_of(op), content_id_of(op)))

    def put(self, key: bytes, operation: Put) -> None:
        content = operation.content
        existing = self._expected.get(key)
        if content.id is None:
            if existing is not None and operation.key not in self._free:
                raise BadRequest(
                    f"New value to update existing key '{operation.key}' has no content ID"
                )
            self._create(key, operation)
        elif existing is not None:
            self._update(key, operation, existing, content.id)
        else:
            self._rename(key, operation, content.id)

    def check_types_kept(self) -> None:
        """Refuse new content of another type under a key that the same commit deletes."""
        for key, was in self.deleted.items():
            now = self.created.get(key, was)
            if now != was:
                raise BadRequest(
                    f"Key '{key}' holds content of type {TYPE_NAMES.get(was, 'unknown')}, which "
                    f"cannot be replaced by {TYPE_NAMES[now]} in one commit; delete it first, in "
                    "a commit of its own"
                )

    def _create(self, key: bytes, operation: Put) -> None:
        id = self._generated_id(operation.key)
        self.generated_ids[operation.key] = id
        content = msgspec.structs.replace(operation.content, id=uuid_text(id))
        self._add(key, operation, content, id, None)
        self.created[operation.key] = PAYLOADS[type(content)]

    def _update(self, key: bytes, operation: Put, existing: bytes, id: str) -> None:
        payload, value, content_id = parts_of(existing)
        known = content_id_text(self._persist, existing)
        if known != id:
            raise BadRequest(
                f"Key '{operation.key}' already exists with content ID {known}, which is "
                f"different from the content ID {id} in the operation"
            )
        legacy = payload == LEGACY_PAYLOAD
        _check_same_type(operation, type_payload(self._persist, existing) if legacy else payload)
        self._add(key, operation, operation.content, content_id, value, legacy=legacy)

    def _rename(self, key: bytes, operation: Put, id: str) -> None:
        if id not in self._deleted_ids:
            raise BadRequest(f"New value for key '{operation.key}' must not have a content ID")
        old, source = self._deleted_ids.pop(id)
        self._free.discard(old)  # Its delete is part of the rename.
        payload = type_payload(self._persist, source)
        _check_same_type(operation, payload)
        self._add(
            key,
            operation,
            operation.content,
            content_id_of(source),
            None,
            renamed=True,
            legacy=is_legacy(source),
        )
        self.created[operation.key] = payload

    def _add(
        self,
        key: bytes,
        operation: Put,
        content: Content,
        content_id: bytes,
        expected: ObjId | None,
        *,
        renamed: bool = False,
        legacy: bool = False,
    ) -> None:
        assert content.id is not None, "new content has an id by now"
        if operation.expected_content is not None:
            expected = value_of_content(operation.expected_content, legacy=legacy).id
        value = value_of_content(content, legacy=legacy)
        self.values.append(value)
        self.adds.append(Add(key, value.payload, value.id, content_id, expected, renamed))


def _check_same_type(operation: Put, existing: int) -> None:
    payload = PAYLOADS[type(operation.content)]
    if payload != existing:
        was = TYPE_NAMES.get(existing, "unknown")
        raise BadRequest(
            f"Key '{operation.key}' holds content of type {was}, which cannot become "
            f"{TYPE_NAMES[payload]}; delete it and put the new content without an ID"
        )


def _id(commit: Commit | None) -> ObjId:
    return NO_ANCESTOR if commit is None else commit.id

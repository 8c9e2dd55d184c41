"""The namespace calls of API version 1.

A namespace exists if it was created, or if only a key inside it was: old clients expect both.
Conflicts while one is created or deleted are reported as ReferenceNotFound, as in Nessie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeGuard

import msgspec

from morag.errors import (
    BadRequest,
    NamespaceAlreadyExists,
    NamespaceNotEmpty,
    NamespaceNotFound,
    ReferenceConflict,
    ReferenceNotFound,
)
from morag.model.content import Namespace
from morag.model.keys import ContentKey
from morag.model.operations import Delete, Put
from morag.service.paging import in_batches
from morag.service.ref_resolution import DETACHED, RequestedRef
from morag.versions.commit import CommitRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from morag.format.objects import Commit
    from morag.model.content import Content
    from morag.model.operations import Operation
    from morag.model.results import CommitResult, Entry
    from morag.service.ref_resolution import RefResolution
    from morag.versions.repository import Repository
    from morag.versions.resolve import Resolved
    from morag.versions.tickets import Proposal


class Namespaces:
    def __init__(self, repository: Repository, refs: RefResolution) -> None:
        self._repository = repository
        self._refs = refs

    def create_request(self, branch: str, namespace: Namespace) -> NamespaceChange:
        if not namespace.elements:
            raise BadRequest("Namespace name must not be empty")
        key = ContentKey(namespace.elements)
        head = self._head(branch)
        existing = self._content(head, key)
        if existing is not None and not isinstance(existing, Namespace):
            raise NamespaceAlreadyExists(
                f"Another content object with name '{key.path}' already exists"
            )
        if existing is not None or self._implied(head, key) is not None:
            raise NamespaceAlreadyExists(f"Namespace '{key.path}' already exists")
        return self._change(branch, f"create namespace '{key.escaped}'", Put(key, namespace))

    def created(self, result: CommitResult, namespace: Namespace) -> Namespace:
        """The namespace with the id that the commit gave it."""
        return msgspec.structs.replace(namespace, id=result.added[ContentKey(namespace.elements)])

    def get(self, ref: RequestedRef, key: ContentKey) -> Namespace:
        return self._find(self._refs.resolve(ref), key)

    def list(self, ref: RequestedRef, below: ContentKey | None) -> Iterator[Sequence[Namespace]]:
        """Namespaces that were created, then those that only follow from their content, in batches.

        An empty batch means that there was work, but no namespace.
        """
        at = self._refs.resolve(ref)
        contents, known = self._repository.contents, _Known()
        entries = contents.entries(at, prefix=below)
        for batch in in_batches(iter(entries)):
            created = [entry.key for entry in batch if entry.type == "NAMESPACE"]
            for contents_batch in contents.get_some(at, created):
                yield [known.created(key, found) for key, found in contents_batch if _is_one(found)]
            yield ()
        for batch in in_batches(iter(entries)):
            parents = [entry.key.parent for entry in batch if known.implies_new(entry)]
            yield [
                Namespace(elements=parent.elements)
                for parent in parents
                if below is None or parent.starts_with(below)
            ]

    def update_request(
        self, branch: str, key: ContentKey, updates: Mapping[str, str], removals: Sequence[str]
    ) -> NamespaceChange:
        namespace = self._find(self._head(branch), key)
        removed = frozenset(removals)
        kept = {name: value for name, value in namespace.properties.items() if name not in removed}
        changed = msgspec.structs.replace(namespace, properties={**kept, **updates})
        key = ContentKey(changed.elements)
        return self._change(
            branch, f"update properties for namespace '{key.escaped}'", Put(key, changed)
        )

    def delete_request(self, branch: str, key: ContentKey) -> NamespaceChange:
        head = self._head(branch)
        namespace = self._find(head, key)
        for entry in self._repository.contents.entries(head, prefix=key):
            if entry.type != "NAMESPACE":
                raise NamespaceNotEmpty(f"Namespace '{key.path}' is not empty")
        key = ContentKey(namespace.elements)
        return self._change(branch, f"delete namespace '{key.escaped}'", Delete(key))

    def _head(self, branch: str) -> Resolved:
        if branch == DETACHED:
            raise BadRequest("Cannot resolve DETACHED to HEAD")
        return self._refs.resolve(RequestedRef.unchecked(branch))

    def _find(self, at: Resolved, key: ContentKey) -> Namespace:
        existing = self._content(at, key)
        found = self._implied(at, key) if existing is None else existing
        if not isinstance(found, Namespace):
            raise NamespaceNotFound(f"Namespace '{key.path}' does not exist", key)
        return found

    def _content(self, at: Resolved, key: ContentKey) -> Content | None:
        return self._repository.contents.find(at, key)

    def _implied(self, at: Resolved, key: ContentKey) -> Namespace | None:
        """The namespace if some key is in it, although it was not created."""
        for entry in self._repository.contents.entries(at, prefix=key):
            if entry.type == "NAMESPACE":
                return Namespace(elements=entry.key.elements)
            if entry.key != key:
                return Namespace(elements=entry.key.parent.elements)
        return None

    def _change(self, branch: str, message: str, operation: Operation) -> NamespaceChange:
        if self._repository.references.get(branch).type != "BRANCH":
            raise ReferenceNotFound.named(branch)
        return NamespaceChange(self._repository.commit_request(branch, [operation], message))


class NamespaceChange:
    """A commit whose conflicts are reported as ReferenceNotFound."""

    operation: ClassVar = CommitRequest.operation
    shares_batch: ClassVar = True

    def __init__(self, commit: CommitRequest) -> None:
        self._commit = commit
        self.branch = commit.branch
        self.who = commit.who
        self.operations = commit.operations
        self.index_bytes = commit.index_bytes
        self.is_brief_on = commit.is_brief_on
        self.forget = commit.forget

    def propose(self, head: Commit | None) -> Proposal:
        try:
            return self._commit.propose(head)
        except ReferenceConflict as conflict:
            raise ReferenceNotFound(str(conflict)) from None


def _is_one(content: Content) -> TypeGuard[Namespace]:
    return isinstance(content, Namespace)


class _Known:
    """The namespaces around the entry that was read last. Entries are read in key order.

    Namespaces that do not contain the entry cannot contain a later one, and are dropped. A
    namespace may be stored under a key that is not its name. The name counts; these few are kept.
    """

    def __init__(self) -> None:
        self._around: list[tuple[str, ...]] = []
        self._names: set[tuple[str, ...]] = set()
        self._other_keys: set[tuple[str, ...]] = set()

    def created(self, key: ContentKey, namespace: Namespace) -> Namespace:
        """Add a namespace that was created. All are added before the first `implies_new`."""
        if namespace.elements != key.elements:
            self._names.add(namespace.elements)
            self._other_keys.add(key.elements)
        return namespace

    def implies_new(self, entry: Entry) -> bool:
        """Whether the entry is in a namespace that was neither created nor implied before."""
        elements, around = entry.key.elements, self._around
        while around and elements[: len(around[-1])] != around[-1]:
            around.pop()
        if entry.type == "NAMESPACE":
            if elements not in self._other_keys:
                around.append(elements)
            return False
        parent = elements[:-1]
        if not parent or (around and around[-1] == parent) or parent in self._names:
            return False
        around.append(parent)
        return True

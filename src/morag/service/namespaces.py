"""The namespace calls of API version 1.

A namespace is there when it was created, and also when only something inside it was: old clients
ask for both. Conflicts while one is created or deleted reach the client as ReferenceNotFound, which
is how they always did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from morag.service.places import DETACHED, Asked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from morag.model.content import Content
    from morag.model.operations import Operation
    from morag.service.places import Places
    from morag.versions.repository import Repository
    from morag.versions.resolve import Resolved


class Namespaces:
    def __init__(self, repository: Repository, places: Places) -> None:
        self._repository = repository
        self._places = places

    def create(self, branch: str, namespace: Namespace) -> Namespace:
        if not namespace.elements:
            raise BadRequest("Namespace name must not be empty")
        key = ContentKey(namespace.elements)
        head = self._head(branch)
        existing = self._content(head, key)
        if existing is not None and not isinstance(existing, Namespace):
            raise NamespaceAlreadyExists(
                f"Another content object with name '{key}' already exists", key
            )
        if existing is not None or self._implied(head, key) is not None:
            raise NamespaceAlreadyExists(f"Namespace '{key}' already exists", key)
        hash = self._commit(branch, f"create namespace '{key}'", Put(key, namespace))
        return self.get(Asked(DETACHED, hash), key)

    def get(self, asked: Asked, key: ContentKey) -> Namespace:
        return self._find(self._places.read(asked), key)

    def list(self, asked: Asked, below: ContentKey | None) -> list[Namespace]:
        """Those that were created, then those that only follow from what is in them."""
        place = self._places.read(asked)
        created: list[ContentKey] = []
        implied: dict[tuple[str, ...], Namespace] = {}
        for entry in self._repository.contents.entries(place, prefix=below):
            if entry.type == "NAMESPACE":
                created.append(entry.key)
            elif len(entry.key.elements) > 1:
                parent = entry.key.parent
                if below is None or parent.starts_with(below):
                    implied[parent.elements] = Namespace(elements=parent.elements)
        found = self._repository.contents.get_all(place, created).values()
        namespaces = [content for content in found if isinstance(content, Namespace)]
        for namespace in namespaces:
            implied.pop(namespace.elements, None)
        return [*namespaces, *implied.values()]

    def update(
        self, branch: str, key: ContentKey, updates: Mapping[str, str], removals: Sequence[str]
    ) -> None:
        namespace = self._find(self._head(branch), key)
        kept = {name: value for name, value in namespace.properties.items() if name not in removals}
        changed = msgspec.structs.replace(namespace, properties={**kept, **updates})
        key = ContentKey(changed.elements)
        self._commit(branch, f"update properties for namespace '{key}'", Put(key, changed))

    def delete(self, branch: str, key: ContentKey) -> None:
        head = self._head(branch)
        namespace = self._find(head, key)
        for entry in self._repository.contents.entries(head, prefix=key):
            if entry.type != "NAMESPACE":
                raise NamespaceNotEmpty(f"Namespace '{key}' is not empty", key)
        key = ContentKey(namespace.elements)
        self._commit(branch, f"delete namespace '{key}'", Delete(key))

    def _head(self, branch: str) -> Resolved:
        return self._places.read(Asked(branch))

    def _find(self, place: Resolved, key: ContentKey) -> Namespace:
        existing = self._content(place, key)
        found = self._implied(place, key) if existing is None else existing
        if not isinstance(found, Namespace):
            raise NamespaceNotFound(f"Namespace '{key}' does not exist", key)
        return found

    def _content(self, place: Resolved, key: ContentKey) -> Content | None:
        return self._repository.contents.find(place, key)

    def _implied(self, place: Resolved, key: ContentKey) -> Namespace | None:
        """A namespace that nobody created, but that something is in."""
        for entry in self._repository.contents.entries(place, prefix=key):
            if entry.type == "NAMESPACE":
                return Namespace(elements=entry.key.elements)
            if entry.key != key:
                return Namespace(elements=entry.key.parent.elements)
        return None

    def _commit(self, branch: str, message: str, operation: Operation) -> str:
        name = branch
        if self._repository.references.get(name).type != "BRANCH":
            raise ReferenceNotFound.named(name)
        try:
            return self._repository.commit(name, [operation], message).hash
        except ReferenceConflict as conflict:
            raise ReferenceNotFound(str(conflict)) from None

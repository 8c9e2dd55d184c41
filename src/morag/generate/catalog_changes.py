"""Changes of many keys in batches: refresh, delete and copy contents, create missing namespaces."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from morag.errors import BadRequest, ContentNotFound
from morag.generate.branch_tips import BranchTip
from morag.generate.generated_keys import namespaces_of
from morag.model.content import Namespace
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from morag.client import Client
    from morag.model.keys import ContentKey
    from morag.model.operations import Operation


class CatalogChanges:
    """Changes of a catalog, each in commits on top of the newest that was made here.

    `note` gets a line about each commit.
    """

    def __init__(
        self,
        client: Client,
        *,
        author: str = "",
        message: str | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._author = author
        self._message = message
        self._note = note

    def branch(self, name: str | None) -> BranchTip:
        """The branch of that name; by default the default branch."""
        found = self._client.references.get(name or self._client.default_branch)
        if found.type != "BRANCH":
            raise BadRequest(f"'{name}' is a tag: only branches can be changed")
        return BranchTip.of(found)

    def branches(self) -> list[BranchTip]:
        return [BranchTip.of(found) for found in self._client.references.list("BRANCH")]

    def keys(self, tip: BranchTip, prefix: ContentKey | None = None) -> list[ContentKey]:
        """All keys of a branch, or those at and below a prefix."""
        return list(self._client.contents.keys(tip.spec, prefix=prefix))

    def refresh(self, tip: BranchTip, keys: Iterable[ContentKey], batch: int) -> int:
        """Put contents as they are, so that the server stores them anew."""
        done = 0
        for some in _batches(keys, batch):
            found = self._client.contents.get_all(tip.spec, some)
            if found:
                puts = [Put(key, content) for key, content in found.items()]
                self._commit(tip, puts, f"Refresh {len(puts)} key(s)")
                done += len(puts)
        return done

    def delete(self, tip: BranchTip, keys: Iterable[ContentKey], batch: int) -> int:
        """Delete keys, those with more elements first: a namespace must be empty."""
        ordered = sorted(keys, key=lambda key: (len(key.elements), key.elements), reverse=True)
        for some in _batches(ordered, batch):
            message = f"Delete {some[0]}" if len(some) == 1 else f"Delete {len(some)} keys"
            self._commit(tip, [Delete(key) for key in some], message)
        return len(ordered)

    def copy(
        self, tip: BranchTip, source: ContentKey, target: Callable[[int], ContentKey], copies: int
    ) -> None:
        """Put the content of a key under other keys, each in a commit, as new content."""
        content = self._client.contents.get_all(tip.spec, [source]).get(source)
        if content is None:
            raise ContentNotFound(f"Branch '{tip.name}' has no content '{source}'", source)
        for number in range(copies):
            put = Put(target(number), replace(content, id=None))
            self._commit(tip, [put], f"Copy {number}")

    def missing_namespaces(self, tip: BranchTip) -> list[ContentKey]:
        """Create the namespaces that keys of a branch are in, and that do not exist."""
        keys, existing = set(), set()
        for entry in self._client.contents.entries(tip.spec):
            keys.add(entry.key)
            if entry.type == "NAMESPACE":
                existing.add(entry.key)
        missing = [key for key in namespaces_of(keys) if key not in existing]
        if missing:
            puts = [Put(key, Namespace(elements=key.elements)) for key in missing]
            self._commit(tip, puts, f"Create namespaces {', '.join(map(str, missing))}")
        return missing

    def _commit(self, tip: BranchTip, operations: Sequence[Operation], message: str) -> None:
        meta = CommitMeta(
            message=self._message or message, authors=(self._author,) if self._author else ()
        )
        tip.head = self._client.commit(tip.name, operations, meta, expected=tip.head).hash
        self._note(f"{message} on {tip.name}: {tip.head}")


def _batches(keys: Iterable[ContentKey], size: int) -> Iterator[list[ContentKey]]:
    rest = iter(keys)
    while some := list(islice(rest, size)):
        yield some

"""Results of reads and commits: the items of listings, their pages, and a new commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

from morag.model.content import Content
from morag.model.keys import ContentKey
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


class Page(Struct, Generic[T_co], frozen=True):
    """Some items, and the token of the next item; None at the end."""

    items: tuple[T_co, ...]
    token: str | None

    def map(self, change: Callable[[T_co], U]) -> Page[U]:
        return Page(tuple(map(change, self.items)), self.token)


class Entry(Struct, frozen=True, gc=False, rename={"key": "name", "content_id": "contentId"}):
    """A key with its type and content id, and with its content if that was requested."""

    key: ContentKey
    type: str
    content_id: str
    content: Content | None = None


class Diff(Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """A key whose content differs between two commits.

    `before` or `after` is null if that commit does not have the key.
    """

    key: ContentKey
    before: Content | None
    after: Content | None


class LogEntry(Struct, frozen=True):
    """A commit, with its operations in key order if they were requested."""

    meta: CommitMeta
    parent: str
    operations: tuple[Put | Delete, ...] | None = None


class LogExtent(Struct, frozen=True):
    """The commit where a log starts, and the number of its commits; None if that needs a walk."""

    hash: str
    commits: int | None


class CommitResult(Struct, frozen=True):
    """The new commit. `added` has the content id of each key that is new."""

    hash: str
    added: dict[ContentKey, str]

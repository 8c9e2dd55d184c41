"""What listings consist of."""

from __future__ import annotations

from msgspec import Struct

from morag.model.content import Content
from morag.model.keys import ContentKey
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Put


class Entry(Struct, frozen=True, gc=False, rename={"key": "name", "content_id": "contentId"}):
    """A key, and what it holds. The content is there only when it was asked for."""

    key: ContentKey
    type: str
    content_id: str
    content: Content | None = None


class Diff(Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """A key that two commits disagree on; None stands for absent."""

    key: ContentKey
    before: Content | None
    after: Content | None


class LogEntry(Struct, frozen=True):
    """A commit. Its operations, in key order, are there only when they were asked for."""

    meta: CommitMeta
    parent: str
    operations: tuple[Put | Delete, ...] | None = None

"""Commit metadata of merges and transplants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from morag.model.meta import CommitMeta
from morag.model.times import parse_instant
from morag.versions.metas import completed

if TYPE_CHECKING:
    from collections.abc import Sequence


def merged_meta(override: CommitMeta | None, message: str, committer: str, now: str) -> CommitMeta:
    """A new commit's metadata: the client's words, or the given message where it has none."""
    meta = override or CommitMeta(message="")
    authors = tuple(author for author in meta.authors if author)
    meta = msgspec.structs.replace(meta, message=meta.message or message, authors=authors)
    return completed(meta, committer, now)


def replayed_meta(
    source: CommitMeta, override: CommitMeta | None, committer: str, now: str
) -> CommitMeta:
    """The source's metadata with what the client overrides. Committer and commit time are new."""
    kept = CommitMeta(
        message=source.message,
        authors=source.authors,
        author_time=source.author_time,
        signed_off_by=source.signed_off_by,
        properties=source.properties,
    )
    return completed(_overridden(kept, override), committer, now)


def squashed_meta(
    sources: Sequence[CommitMeta],
    override: CommitMeta | None,
    message: str,
    committer: str,
    now: str,
) -> CommitMeta:
    """One for many: all authors, the latest author time, later properties over earlier ones."""
    authors = dict.fromkeys(author for meta in sources for author in meta.authors if author)
    times = [meta.author_time for meta in sources if meta.author_time is not None]
    properties: dict[str, tuple[str, ...]] = {}
    for meta in sources:
        properties.update(meta.properties)
    squashed = CommitMeta(
        message=message,
        authors=tuple(authors),
        author_time=max(times, key=parse_instant, default=None),
        properties=properties,
    )
    return completed(_overridden(squashed, override), committer, now)


def _overridden(meta: CommitMeta, override: CommitMeta | None) -> CommitMeta:
    if override is None:
        return meta
    return CommitMeta(
        message=override.message or meta.message,
        authors=tuple(a for a in override.authors if a) or meta.authors,
        author_time=override.author_time or meta.author_time,
        signed_off_by=override.signed_off_by or meta.signed_off_by,
        properties=override.properties or meta.properties,
    )

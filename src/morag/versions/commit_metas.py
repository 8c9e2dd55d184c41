"""Builds the metadata of new commits, merges and transplants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from morag.model.meta import CommitMeta
from morag.model.times import instant_text, parse_instant

if TYPE_CHECKING:
    from collections.abc import Sequence


def completed(meta: CommitMeta, committer: str, now: str) -> CommitMeta:
    """The client's metadata, with the fields that the server sets and with defaults."""
    author_time = meta.author_time
    return CommitMeta(
        message=meta.message,
        authors=meta.authors or (committer,),
        author_time=now if author_time is None else instant_text(parse_instant(author_time)),
        signed_off_by=meta.signed_off_by,
        properties=meta.properties,
        committer=committer,
        commit_time=now,
    )


def merged_meta(override: CommitMeta | None, message: str, committer: str, now: str) -> CommitMeta:
    """The metadata of a new commit: the client's, with the given message if it has none."""
    meta = override or CommitMeta(message="")
    authors = tuple(author for author in meta.authors if author)
    meta = msgspec.structs.replace(meta, message=meta.message or message, authors=authors)
    return completed(meta, committer, now)


def replayed_meta(
    source: CommitMeta, override: CommitMeta | None, committer: str, now: str
) -> CommitMeta:
    """The source's metadata with the client's overrides. Committer and commit time are new."""
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
    """Combine several: all authors, the latest author time, later properties over earlier ones."""
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

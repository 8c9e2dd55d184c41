"""Commit metadata as the headers that a commit stores, and back."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from morag.format.header_order import java_header_order
from morag.model.meta import CommitMeta
from morag.model.times import instant_text, parse_header_time

if TYPE_CHECKING:
    from morag.format.ids import Headers
    from morag.format.objects import Commit

_COMMIT_TIME: Final = "date"
_AUTHOR_TIME: Final = "author-date"
_COMMITTER: Final = "committer"
_AUTHORS: Final = "author"
_SIGNED_OFF_BY: Final = "signed-off-by"


def headers_of(meta: CommitMeta) -> Headers:
    """The headers of complete metadata, in the order in which they are stored and hashed.

    Names become lower case. A property with the name of a field shares the field's header, and its
    values come first, so readers take the first of them for the field. Nessie does the same.
    """
    assert meta.commit_time is not None and meta.author_time is not None, "times are not set"
    assert meta.committer is not None and meta.authors, "committer or authors are not set"
    headers: dict[str, tuple[str, ...]] = {}
    for property, values in meta.properties.items():
        if values:
            name = property.lower()
            headers[name] = headers.get(name, ()) + values
    for name, values in (
        (_COMMIT_TIME, (meta.commit_time,)),
        (_AUTHOR_TIME, (meta.author_time,)),
        (_COMMITTER, (meta.committer,)),
        (_AUTHORS, meta.authors),
        (_SIGNED_OFF_BY, meta.signed_off_by),
    ):
        if values:
            headers[name] = headers.get(name, ()) + values
    return tuple([(name, headers[name]) for name in java_header_order(tuple(headers))])


def known_headers_of(meta: CommitMeta, *, in_stored_order: bool) -> Headers:
    """The headers of a commit, from the metadata that a server shows of it.

    Morag shows properties in the order of the stored headers. Names that share a bucket of Java's
    map were added in the opposite order. Nessie shows them in the order in which they were added.
    Metadata may lack fields, which have no headers then.
    """
    if in_stored_order and len(meta.properties) > 1:
        meta = replace(meta, properties=dict(reversed(meta.properties.items())))
    return _headers_of_known_fields(meta)


def _headers_of_known_fields(meta: CommitMeta) -> Headers:
    fields = {
        _COMMIT_TIME: meta.commit_time,
        _AUTHOR_TIME: meta.author_time,
        _COMMITTER: meta.committer,
        _AUTHORS: meta.authors or None,
    }
    absent = {name for name, value in fields.items() if value is None}
    if not absent:
        return headers_of(meta)
    filled = replace(
        meta,
        commit_time=meta.commit_time or "",
        author_time=meta.author_time or "",
        committer=meta.committer or "",
        authors=meta.authors or ("",),
    )
    headers = {name: values for name, values in headers_of(filled) if name not in absent}
    return tuple([(name, headers[name]) for name in java_header_order(tuple(headers))])


def meta_of(commit: Commit) -> CommitMeta:
    """The metadata in the headers. A time that cannot be parsed is left out."""
    properties = dict(commit.headers)
    commit_times = properties.pop(_COMMIT_TIME, ())
    author_times = properties.pop(_AUTHOR_TIME, ())
    committers = properties.pop(_COMMITTER, ())
    parents: tuple[str, ...] = (commit.parent.hex(),)
    if commit.merge_parents:
        parents += tuple(id.hex() for id in commit.merge_parents)
    return CommitMeta(
        message=commit.message,
        authors=properties.pop(_AUTHORS, ()),
        author_time=_normalised(author_times[0]) if author_times else None,
        signed_off_by=properties.pop(_SIGNED_OFF_BY, ()),
        properties=properties,
        hash=commit.id.hex(),
        committer=committers[0] if committers else None,
        commit_time=_normalised(commit_times[0]) if commit_times else None,
        parents=parents,
    )


@lru_cache(maxsize=1024)  # In nearly all commits both times are the same text.
def _normalised(text: str) -> str | None:
    nanos = parse_header_time(text)
    return None if nanos is None else instant_text(nanos)

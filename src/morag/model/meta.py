"""Commit metadata: message, authors, times and properties."""

from __future__ import annotations

from msgspec import Struct, field

from morag.errors import BadRequest
from morag.model.json_types import Time
from morag.model.keys import check_unicode
from morag.model.times import parse_instant


def _empty() -> tuple[str, ...]:
    """An empty list that is sent nevertheless: msgspec omits only plain defaults."""
    return ()


class CommitMeta(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={
        "author_time": "authorTime",
        "signed_off_by": "allSignedOffBy",
        "properties": "allProperties",
        "commit_time": "commitTime",
        "parents": "parentCommitHashes",
    },
):
    """Commit metadata. The client sets `message`, `authors`, `author_time`, `signed_off_by` and
    `properties`; the catalog sets the other fields.

    Times are ISO texts in UTC with up to nine digits of fraction: the form that is stored, hashed
    and sent. Names of properties are stored in lower case.
    """

    message: str
    authors: tuple[str, ...] = field(default_factory=_empty)
    author_time: Time | None = None
    signed_off_by: tuple[str, ...] = field(default_factory=_empty)
    # As in Nessie, a property named like the header of a field (`date`, `author-date`, `committer`,
    # `author` or `signed-off-by`) mixes its values with those of the field: avoid these names.
    properties: dict[str, tuple[str, ...]] = {}

    hash: str | None = None
    committer: str | None = None
    commit_time: Time | None = None
    parents: tuple[str, ...] = field(default_factory=_empty)


def texts_length(meta: CommitMeta) -> int:
    """The number of characters in the client's texts, which may be large."""
    length = len(meta.message)
    for text in meta.authors:  # Faster than a sum: most commits have one or none.
        length += len(text)
    for text in meta.signed_off_by:
        length += len(text)
    for name, values in meta.properties.items():
        length += len(name) + sum(map(len, values))
    return length


def check_client_meta(meta: CommitMeta) -> None:
    """Refuse metadata that a client must not send."""
    if not isinstance(meta, CommitMeta):
        raise BadRequest(f"Commit metadata must be a CommitMeta, not {meta!r}")
    if meta.committer is not None:
        raise BadRequest("Cannot set the committer on the client side. It is set by the server.")
    if meta.commit_time is not None:
        raise BadRequest("Cannot set the commit time on the client side. It is set by the server.")
    if meta.hash is not None:
        raise BadRequest("Cannot set the commit hash on the client side. It is set by the server.")
    if meta.parents:
        raise BadRequest(
            "Cannot set the parent commit hashes on the client side. It is set by the server."
        )
    if meta.author_time is not None:
        check_unicode("Author time", meta.author_time)
        parse_instant(meta.author_time)
    for people in (meta.authors, meta.signed_off_by):
        if not isinstance(people, tuple):
            raise BadRequest(f"Authors and sign-offs must be tuples of texts, not {people!r}")
    texts: tuple[object, ...] = (meta.message, *meta.authors, *meta.signed_off_by)
    for text in texts:
        check_unicode("Commit metadata", text)
    check_headers("Commit properties", meta.properties)


def check_headers(what: str, headers: object) -> None:
    """Refuse headers that a commit or a tag could not store."""
    if not isinstance(headers, dict):
        raise BadRequest(f"{what} must be a dict from text to a tuple of texts")
    for name, values in headers.items():
        check_unicode(what, name)
        if not isinstance(values, tuple):
            raise BadRequest(f"{what}: '{name}' must have a tuple of texts, not {values!r}")
        for value in values:
            check_unicode(what, value)

"""Commit metadata that clients send in headers, in addition to the body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.api.http import Header
    from morag.model.meta import CommitMeta

_PREFIX: Final = b"nessie-commit-"
_PROPERTY: Final = "property-"


def with_headers(meta: CommitMeta, headers: Sequence[Header]) -> CommitMeta:
    """The message and properties replace those of the body; authors and sign-offs are added."""
    sent = [
        (name[len(_PREFIX) :].decode("latin-1"), value.decode("utf-8", "replace").strip())
        for name, value in headers
        if name.startswith(_PREFIX)
    ]
    if not sent:
        return meta
    message, authors = meta.message, list(meta.authors)
    signed_off_by = list(meta.signed_off_by)
    properties: dict[str, tuple[str, ...]] = {}
    is_set = False
    for name, value in sent:
        if name == "message" and value and not is_set:
            message, is_set = value, True
        elif name == "authors":
            authors += _listed(value)
        elif name == "signedoffby":
            signed_off_by += _listed(value)
        elif name.startswith(_PROPERTY):
            property = name.removeprefix(_PROPERTY).strip()
            if value:
                properties[property] = (*properties.get(property, ()), value)
    return msgspec.structs.replace(
        meta,
        message=message,
        authors=tuple(authors),
        signed_off_by=tuple(signed_off_by),
        properties={**meta.properties, **properties},
    )


def _listed(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]

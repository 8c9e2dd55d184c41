"""The mark of an import under way, in the description of its repository.

As long as it is there, references are missing and commits may be. Servers refuse such a repository.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from morag.errors import CopyUnderWay, ImportUnderWay

if TYPE_CHECKING:
    from morag.logic.repository import RepositoryDescription

COPY: Final = "morag-copy"
"""The start of the source of a copy."""

_PROPERTY: Final = "morag.import"


class ImportMarker(Struct, frozen=True, rename="camel"):
    """`source` identifies what is imported, so that only that is resumed."""

    source: str
    started_micros: int


def marker_of(description: RepositoryDescription) -> ImportMarker | None:
    text = description.properties.get(_PROPERTY)
    return None if text is None else msgspec.json.decode(text, type=ImportMarker)


def marked(description: RepositoryDescription, marker: ImportMarker) -> RepositoryDescription:
    text = msgspec.json.encode(marker).decode()
    return replace(description, properties={**description.properties, _PROPERTY: text})


def unmarked(description: RepositoryDescription) -> RepositoryDescription:
    properties = {k: v for k, v in description.properties.items() if k != _PROPERTY}
    return replace(description, properties=properties)


def check_not_importing(description: RepositoryDescription) -> None:
    """Refuse to serve or change a repository that is not complete."""
    marker = marker_of(description)
    if marker is not None:
        raise CopyUnderWay if marker.source.startswith(COPY) else ImportUnderWay

"""Single contents, as of a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.errors import ContentNotFound
from morag.service.places import reference_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.model.content import Content
    from morag.model.keys import ContentKey
    from morag.model.references import Reference
    from morag.service.places import Asked, Places
    from morag.versions.repository import Repository


class Contents:
    def __init__(self, repository: Repository, places: Places) -> None:
        self._repository = repository
        self._places = places

    def get(self, asked: Asked, key: ContentKey) -> tuple[Reference, Content]:
        place = self._places.read(asked, "Expected hash")
        content = self._repository.contents.find(place, key)
        if content is None:
            shown = "null" if asked.name is None else asked.name
            raise ContentNotFound(
                f"Could not find content for key '{key}' in reference '{shown}'.", key
            )
        return reference_of(place), content

    def get_all(
        self, asked: Asked, keys: Sequence[ContentKey]
    ) -> tuple[Reference, dict[ContentKey, Content]]:
        """Those that exist; the others are left out."""
        place = self._places.read(asked, "Expected hash")
        return reference_of(place), self._repository.contents.get_all(place, keys)

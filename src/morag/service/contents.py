"""Single contents, as of a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.errors import ContentNotFound
from morag.service.places import reference_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from morag.model.content import Content
    from morag.model.keys import ContentKey
    from morag.model.references import Reference
    from morag.service.places import Asked, Places
    from morag.versions.contents import Undecoded
    from morag.versions.repository import Repository


class Contents:
    def __init__(self, repository: Repository, places: Places) -> None:
        self._repository = repository
        self._places = places

    def find(self, asked: Asked, key: ContentKey) -> tuple[Reference, Undecoded]:
        place = self._places.read(asked, "Expected hash")
        found = self._repository.contents.find_undecoded(place, key)
        if found is None:
            shown = "null" if asked.name is None else asked.name
            raise ContentNotFound(
                f"Could not find content for key '{key}' in reference '{shown}'.", key
            )
        return reference_of(place), found

    def find_all(
        self, asked: Asked, keys: Sequence[ContentKey]
    ) -> tuple[Reference, list[tuple[ContentKey, Undecoded]]]:
        """The keys that exist, for a few keys."""
        place = self._places.read(asked, "Expected hash")
        return reference_of(place), self._repository.contents.undecoded(place, keys)

    def get_all(
        self, asked: Asked, keys: Sequence[ContentKey]
    ) -> tuple[Reference, Iterator[Sequence[tuple[ContentKey, Content]]]]:
        """The contents of the keys that exist, in batches, of which some may be empty."""
        place = self._places.read(asked, "Expected hash")
        return reference_of(place), self._repository.contents.get_some(place, keys)

"""The contents of single keys, as of a commit, encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.errors import ContentNotFound
from morag.service.ref_resolution import reference_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from morag.model.content import Content
    from morag.model.keys import ContentKey
    from morag.model.references import Reference
    from morag.service.ref_resolution import RefResolution, RequestedRef
    from morag.versions.commit_contents import Unencoded
    from morag.versions.encoding import Encoding
    from morag.versions.repository import Repository


class Contents:
    def __init__(self, repository: Repository, refs: RefResolution) -> None:
        self._repository = repository
        self._refs = refs

    def find(
        self, ref: RequestedRef, key: ContentKey, encoding: Encoding[Content]
    ) -> tuple[Reference, Unencoded]:
        at = self._refs.resolve(ref, "Expected hash")
        found = self._repository.contents.find_unencoded(at, key, encoding)
        if found is None:
            shown = "null" if ref.name is None else ref.name
            raise ContentNotFound(
                f"Could not find content for key '{key}' in reference '{shown}'.", key
            )
        return reference_of(at), found

    def find_all(
        self, ref: RequestedRef, keys: Sequence[ContentKey], encoding: Encoding[Content]
    ) -> tuple[Reference, list[tuple[ContentKey, Unencoded]]]:
        """The contents of the keys that exist, at once. For few keys."""
        at = self._refs.resolve(ref, "Expected hash")
        return reference_of(at), self._repository.contents.unencoded(at, keys, encoding)

    def get_all(
        self, ref: RequestedRef, keys: Sequence[ContentKey], encoding: Encoding[Content]
    ) -> tuple[Reference, Iterator[Sequence[tuple[ContentKey, bytes]]]]:
        """The contents of the keys that exist, in batches. Batches may be empty."""
        at = self._refs.resolve(ref, "Expected hash")
        return reference_of(at), self._repository.contents.encoded(at, keys, encoding)

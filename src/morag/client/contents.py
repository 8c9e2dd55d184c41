"""What is on a commit, asked from a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.client.errors import NotOffered, UnexpectedAnswer
from morag.client.paging import Listing, Part
from morag.client.specs import key_path, key_text, path_of
from morag.client.wire import CONTENT, CONTENTS, DIFFS, ENTRIES, SPLITS, WantedKeys
from morag.errors import BadRequest
from morag.model.keys import check_key
from morag.model.refspecs import RefSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.client.http import Http
    from morag.client.paging import Query
    from morag.client.places import Places
    from morag.client.wire import WireReference
    from morag.model.content import Content
    from morag.model.keys import ContentKey
    from morag.model.listed import Diff, Entry


class ClientContents:
    """Contents and their keys, as of any commit.

    `filter` is a CEL expression; `keys` that are asked for travel in the URL, so that servers take
    some dozens of them at once. `get_all` has no such limit.
    """

    def __init__(self, http: Http, places: Places) -> None:
        self._http = http
        self._places = places

    def get(self, at: str | RefSpec, key: ContentKey) -> Content:
        """The content of one key; ContentNotFound if there is none."""
        path = f"{self._tree(at)}/contents/{key_path(key)}"
        return self._http.get(path, CONTENT).content

    def get_all(self, at: str | RefSpec, keys: Sequence[ContentKey]) -> dict[ContentKey, Content]:
        """The contents of those keys that exist, in the order asked for."""
        keys = tuple(keys)
        for key in keys:
            check_key(key)
        if not keys:
            return {}
        found = self._http.read(f"{self._tree(at)}/contents", WantedKeys(keys), CONTENTS)
        contents = {each.key: each.content for each in found.contents}
        return {key: contents[key] for key in keys if key in contents}

    def keys(
        self,
        at: str | RefSpec,
        *,
        min_key: ContentKey | None = None,
        max_key: ContentKey | None = None,
        prefix: ContentKey | None = None,
        filter: str = "",
        token: str | None = None,
    ) -> Listing[ContentKey]:
        """Only the keys."""
        entries = self.entries(
            at, min_key=min_key, max_key=max_key, prefix=prefix, filter=filter, token=token
        )
        return entries.map(lambda entry: entry.key)

    def entries(
        self,
        at: str | RefSpec,
        *,
        min_key: ContentKey | None = None,
        max_key: ContentKey | None = None,
        prefix: ContentKey | None = None,
        keys: Sequence[ContentKey] = (),
        with_content: bool = False,
        filter: str = "",
        token: str | None = None,
    ) -> Listing[Entry]:
        """Everything on a commit, in key order. Bounds and prefix belong to the listing."""
        fixed = _range(min_key, max_key, prefix, keys, filter)
        if with_content:
            fixed.append(("content", "true"))

        def read(path: str, query: Query) -> Part[Entry]:
            found = self._http.get(path, ENTRIES, [*fixed, *query])
            effective = found.effective_reference
            following = path if effective is None else f"{self._at(effective)}/entries"
            return Part(found.entries, found.following, following)

        return Listing(read, lambda: f"{self._tree(at)}/entries", token)

    def splits(self, at: str | RefSpec, parts: int) -> tuple[ContentKey, ...]:
        """Keys that cut a commit into at most `parts` ranges of about the same size. Only Morag's
        own servers tell."""
        if parts < 1:
            raise BadRequest("There must be at least one part")
        path = f"{self._http.own}/trees/{self._places.path(at)}/splits"
        try:
            return self._http.get(path, SPLITS, [("parts", str(parts))]).keys
        except UnexpectedAnswer as error:
            raise NotOffered.instead_of(
                error, "this server does not split keys, which is an extra of Morag's"
            ) from error

    def diff(
        self,
        before: str | RefSpec,
        after: str | RefSpec,
        *,
        min_key: ContentKey | None = None,
        max_key: ContentKey | None = None,
        prefix: ContentKey | None = None,
        keys: Sequence[ContentKey] = (),
        filter: str = "",
        token: str | None = None,
    ) -> Listing[Diff]:
        """What changed from one commit to the other, in key order."""
        fixed = _range(min_key, max_key, prefix, keys, filter)

        def read(path: str, query: Query) -> Part[Diff]:
            found = self._http.get(path, DIFFS, [*fixed, *query])
            one, other = found.effective_from_reference, found.effective_to_reference
            following = path
            if one is not None and other is not None:
                following = f"{self._at(one)}/diff/{_element(other)}"
            return Part(found.diffs, found.following, following)

        return Listing(read, lambda: f"{self._tree(before)}/diff/{self._places.path(after)}", token)

    def _tree(self, at: str | RefSpec) -> str:
        return f"{self._http.api}/trees/{self._places.path(at)}"

    def _at(self, reference: WireReference) -> str:
        return f"{self._http.api}/trees/{_element(reference)}"


def _element(reference: WireReference) -> str:
    return path_of(RefSpec(reference.name, reference.hash))


def _range(
    min_key: ContentKey | None,
    max_key: ContentKey | None,
    prefix: ContentKey | None,
    keys: Sequence[ContentKey],
    filter: str,
) -> list[tuple[str, str]]:
    if prefix is not None and (min_key is not None or max_key is not None):
        raise BadRequest("Combining prefixKey with either minKey or maxKey is not supported.")
    bounds = {"min-key": min_key, "max-key": max_key, "prefix-key": prefix}
    query = [(name, key_text(key)) for name, key in bounds.items() if key is not None]
    query += [("key", key_text(key)) for key in keys]
    return [*query, ("filter", filter)] if filter else query

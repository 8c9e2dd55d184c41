"""Contents and keys on a server."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from morag.client.decoders import CONTENT, CONTENTS, DIFFS, ENTRIES, SPLITS
from morag.client.errors import NotOffered, UnexpectedAnswer
from morag.client.listing import Listing, Part
from morag.client.specs import key_path, key_text, path_of
from morag.errors import BadRequest
from morag.model.entry_columns import ALL, WHOLE, columns_of_entries
from morag.model.keys import check_key
from morag.model.refspecs import RefSpec
from morag.rest.requests import KeysBody

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from morag.client.json_http import Http
    from morag.client.listing import Query
    from morag.client.ref_lookup import RefLookup
    from morag.model.content import Content
    from morag.model.entry_columns import Columns, EntryFilter, KeySpan
    from morag.model.keys import ContentKey
    from morag.model.results import Diff, Entry
    from morag.rest.responses import ReferenceView


_ROWS_AT_ONCE: Final = 10_000


class ClientContents:
    """Contents and their keys, as of any commit.

    `filter` is a CEL expression. Requested `keys` are sent in the URL, so that servers accept some
    dozens of them at once. `get_all` has no such limit.
    """

    def __init__(self, http: Http, refs: RefLookup) -> None:
        self._http = http
        self._refs = refs

    def get(self, at: str | RefSpec, key: ContentKey) -> Content:
        """The content of one key. Raises `ContentNotFound` if there is none."""
        path = f"{self._tree(at)}/contents/{key_path(key)}"
        return self._http.get(path, CONTENT).content

    def get_all(self, at: str | RefSpec, keys: Sequence[ContentKey]) -> dict[ContentKey, Content]:
        """The contents of those keys that exist, in the requested order."""
        keys = tuple(keys)
        for key in keys:
            check_key(key)
        if not keys:
            return {}
        found = self._http.read(f"{self._tree(at)}/contents", KeysBody.of(keys), CONTENTS)
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
        """The entries at a commit, in key order, the bounds included."""
        fixed = _range(min_key, max_key, prefix, keys, filter)
        if with_content:
            fixed.append(("content", "true"))

        def read(path: str, query: Query) -> Part[Entry]:
            found = self._http.get(path, ENTRIES, [*fixed, *query])
            effective = found.effective_reference
            following = path if effective is None else f"{self._at(effective)}/entries"
            return Part(found.entries, found.next_token, following)

        return Listing(read, lambda: f"{self._tree(at)}/entries", token)

    def columns(
        self,
        at: str | RefSpec,
        *,
        span: KeySpan = WHOLE,
        selected: EntryFilter = ALL,
        with_content: bool = False,
    ) -> Iterator[Columns]:
        """The same as `entries`, in columns."""
        if selected.key is not None:
            listed = self.entries(
                at, keys=(selected.key,), with_content=with_content, filter=_cel(selected)
            )
        else:
            listed = self.entries(
                at,
                min_key=span.start,
                max_key=span.before,
                with_content=with_content,
                filter=_cel(selected),
            )
        entries = span.cut(listed)
        while some := list(islice(entries, _ROWS_AT_ONCE)):
            yield columns_of_entries(some, with_content=with_content)

    def splits(self, at: str | RefSpec, parts: int) -> tuple[ContentKey, ...]:
        """Keys that cut a commit into at most `parts` ranges of about the same size.

        Only Morag's servers offer this.
        """
        if parts < 1:
            raise BadRequest("There must be at least one part")
        path = f"{self._http.own}/trees/{self._refs.path(at)}/splits"
        try:
            return self._http.get(path, SPLITS, [("parts", str(parts))]).keys
        except UnexpectedAnswer as error:
            raise NotOffered.instead_of(
                error, "this server does not split keys: only Morag does"
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
        """The differences between two commits, in key order."""
        fixed = _range(min_key, max_key, prefix, keys, filter)

        def read(path: str, query: Query) -> Part[Diff]:
            found = self._http.get(path, DIFFS, [*fixed, *query])
            one, other = found.effective_from_reference, found.effective_to_reference
            following = path
            if one is not None and other is not None:
                following = f"{self._at(one)}/diff/{_element(other)}"
            return Part(found.diffs, found.next_token, following)

        return Listing(read, lambda: f"{self._tree(before)}/diff/{self._refs.path(after)}", token)

    def _tree(self, at: str | RefSpec) -> str:
        return f"{self._http.api}/trees/{self._refs.path(at)}"

    def _at(self, reference: ReferenceView) -> str:
        return f"{self._http.api}/trees/{_element(reference)}"


def _element(reference: ReferenceView) -> str:
    return path_of(RefSpec(reference.name, reference.hash))


def _cel(selected: EntryFilter) -> str:
    """The types and names of the filter as a CEL expression."""
    tests = []
    for variable, values in (("entry.contentType", selected.types), ("entry.name", selected.names)):
        if values is not None:
            tests.append(f"{variable} in {msgspec.json.encode(sorted(values)).decode()}")
    return " && ".join(tests)


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

"""The variables that a filter of each listing can use: their names, types and getters."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeAlias

from msgspec import Struct

from morag.model.content import type_name
from morag.model.entry_columns import SEPARATOR, path_of_key
from morag.model.meta import CommitMeta
from morag.model.operations import Put
from morag.model.references import Reference, ReferenceMetadata
from morag.service.filters.types import INT, STRING, TIMESTAMP, Type, list_of, map_of

Getter: TypeAlias = Callable[[Any], Any]
"""From an item of a listing, or from a part of it, to a value, or None."""


class Field(Struct, frozen=True):
    type: Type
    get: Getter


Fields: TypeAlias = dict[str, Field]

DOT_IN_ELEMENT: Final = "\x1d"
"""Stands for a dot within an element, where dots separate the elements."""


def _encoded(path: str) -> str:
    """Joined by dots; a dot within an element becomes the group separator."""
    return path.replace(".", DOT_IN_ELEMENT).replace(SEPARATOR, ".")


def _first(texts: tuple[str, ...]) -> str | None:
    return texts[0] if texts else None


def _of_key(path: Getter) -> Fields:
    """The fields of everything that has a key. `path` finds the path of the key."""
    return {
        "key": Field(STRING, lambda item: path(item).replace(SEPARATOR, ".")),
        "encodedKey": Field(STRING, lambda item: _encoded(path(item))),
        "keyElements": Field(list_of(STRING), lambda item: path(item).split(SEPARATOR)),
        "name": Field(STRING, lambda item: path(item).rpartition(SEPARATOR)[2]),
        "namespace": Field(STRING, lambda item: _encoded(path(item).rpartition(SEPARATOR)[0])),
        "namespaceElements": Field(list_of(STRING), lambda item: path(item).split(SEPARATOR)[:-1]),
    }


_ENTRY: Final = Type("Entry")
_KEY: Final = Type("Key")
_OPERATION: Final = Type("Operation")
_CONTENT: Final = Type("Content")
_COMMIT: Final = Type("CommitMeta")
_REFERENCE: Final = Type("Reference")
_METADATA: Final = Type("ReferenceMetadata")

_NO_METADATA: Final = ReferenceMetadata(head=CommitMeta(message=""), total_commits=0)
"""Used if the listing did not fetch metadata."""

OBJECTS: Final[dict[str, Fields]] = {
    _ENTRY.name: {
        **_of_key(itemgetter(0)),
        "contentType": Field(STRING, itemgetter(1)),
    },
    _KEY.name: _of_key(itemgetter(0)),
    _OPERATION.name: {
        **_of_key(lambda operation: path_of_key(operation.key)),
        "type": Field(STRING, lambda item: "PUT" if isinstance(item, Put) else "DELETE"),
        "content": Field(_CONTENT, lambda item: item.content if isinstance(item, Put) else None),
    },
    _CONTENT.name: {
        "type": Field(STRING, type_name),
        "id": Field(STRING, attrgetter("id")),
    },
    _COMMIT.name: {
        "hash": Field(STRING, attrgetter("hash")),
        "committer": Field(STRING, attrgetter("committer")),
        "author": Field(STRING, lambda meta: _first(meta.authors)),
        "authors": Field(list_of(STRING), attrgetter("authors")),
        "signedOffBy": Field(STRING, lambda meta: _first(meta.signed_off_by)),
        "allSignedOffBy": Field(list_of(STRING), attrgetter("signed_off_by")),
        "message": Field(STRING, attrgetter("message")),
        "commitTime": Field(TIMESTAMP, attrgetter("commit_time")),
        "authorTime": Field(TIMESTAMP, attrgetter("author_time")),
        "properties": Field(
            map_of(STRING, STRING),
            lambda meta: {name: values[0] for name, values in meta.properties.items() if values},
        ),
        "allProperties": Field(map_of(STRING, list_of(STRING)), attrgetter("properties")),
        "parentCommitHashes": Field(list_of(STRING), attrgetter("parents")),
    },
    _METADATA.name: {
        "numCommitsAhead": Field(INT, attrgetter("ahead")),
        "numCommitsBehind": Field(INT, attrgetter("behind")),
        "commitMetaOfHEAD": Field(_COMMIT, attrgetter("head")),
        "commonAncestorHash": Field(STRING, attrgetter("common_ancestor")),
        "numTotalCommits": Field(
            INT, lambda meta: None if meta is _NO_METADATA else meta.total_commits
        ),
    },
    _REFERENCE.name: {
        "name": Field(STRING, lambda item: item[0].name),
        "hash": Field(STRING, lambda item: item[0].hash),
        "metadata": Field(_METADATA, itemgetter(1)),
    },
}
"""The fields of every type of object. A field that is not set is null."""

ENTRIES: Final[Fields] = {"entry": Field(_ENTRY, lambda item: item)}
"""Items are pairs of a path, as in `Columns`, and a type: all that an entry is judged by."""
DIFFS: Final[Fields] = {"key": Field(_KEY, lambda item: item)}
"""Items are such pairs, too, without a type."""
LOG: Final[Fields] = {
    "commit": Field(_COMMIT, attrgetter("meta")),
    "operations": Field(list_of(_OPERATION), lambda item: item.operations or ()),
}


def _metadata(item: tuple[Reference, ReferenceMetadata | None]) -> ReferenceMetadata:
    return item[1] or _NO_METADATA


REFERENCES: Final[Fields] = {
    "ref": Field(_REFERENCE, lambda item: item),
    "refType": Field(STRING, lambda item: item[0].type),
    "refMeta": Field(_METADATA, _metadata),
    "commit": Field(_COMMIT, lambda item: _metadata(item).head),
}
"""Items are pairs of a reference and its metadata, if it was fetched."""

"""Which filters read only some keys, and which need no library."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

import morag
from morag.config import Settings
from morag.index.keys import store_key
from morag.model.content import Namespace
from morag.model.keys import ContentKey
from morag.model.operations import Put
from morag.service.filters import KeyFilter, diff_filter, entry_filter
from morag.service.filters.program import Program
from morag.service.filters.variables import DIFFS, ENTRIES, LOG, REFERENCES
from morag.service.listings import KeySelection
from morag.service.ref_resolution import RequestedRef
from morag.service.service import Service
from morag.versions.commit_contents import Bounds
from morag.versions.screens import Screen
from tests.service.items import AS_TEXT

if TYPE_CHECKING:
    from morag.service.filters.variables import Fields

CLIENTS = [
    # Nessie's Java client and its Iceberg REST service, Iceberg's NessieCatalog, Nessie's UI
    (ENTRIES, "entry.encodedKey.startsWith('a.b.')"),
    (ENTRIES, "entry.contentType == 'NAMESPACE'"),
    (ENTRIES, "entry.contentType == 'NAMESPACE' && size(entry.keyElements) == 1"),
    (
        ENTRIES,
        "entry.contentType == 'NAMESPACE' && size(entry.keyElements) == 3"
        " && entry.encodedKey.startsWith('a.b.')",
    ),
    (
        ENTRIES,
        "entry.contentType == 'NAMESPACE'"
        "&& (entry.encodedKey == 'a.b' || entry.encodedKey.startsWith('a.b.'))",
    ),
    (ENTRIES, "entry.contentType == 'ICEBERG_TABLE' && entry.encodedKey.startsWith('a.b.')"),
    # Nessie's command line
    (ENTRIES, "entry.encodedKey.startsWith('a') && entry.encodedKey.contains('b')"),
    (REFERENCES, "ref.name.startsWith('a') && ref.name.contains('b')"),
    # pynessie
    (ENTRIES, "entry.namespace.startsWith('a.b') && entry.contentType in ['ICEBERG_TABLE', 'X']"),
    (LOG, "(commit.author in ['a', 'b']) && (commit.committer in ['a'])"),
    (LOG, "timestamp(commit.commitTime) > timestamp('2021-05-31T08:23:15Z')"),
    # Nessie's SQL extensions for Spark
    (LOG, "timestamp(commit.commitTime) <= timestamp('2021-05-31T08:23:15.123456Z')"),
    # Its documentation
    (LOG, "commit.author=='nessie_author'"),
    (REFERENCES, "refType == 'TAG'"),
]


@pytest.mark.parametrize(("variables", "text"), CLIENTS)
def test_filters_that_clients_send_need_no_library(variables: Fields, text: str) -> None:
    assert Program(text, variables).is_settled


@pytest.mark.parametrize(
    "text",
    [
        "entry.name.matches('a')",
        "entry.name == 'a' && entry.name.matches('a')",
        "entry.name == 'a' || 1 / 0 == 1",
        "!(entry.name == 'a' && entry.name < 'b')",
    ],
)
def test_other_filters_need_the_library(text: str) -> None:
    assert not Program(text, ENTRIES).is_settled


NAMES = ["a", "a/x", "a/x/y", "a b", "a-", "a.b", "a.b/x", "ab", "ab/x", "b", "b/x", "b/x/y", "c"]
"""Keys in their order, with slashes between elements."""


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("entry.namespace == 'a'", ["a/x", "a/x/y"]),
        ("entry.namespace == 'b.x'", ["b/x/y"]),
        ("entry.namespace == ''", NAMES),
        (r"entry.namespace == 'a\u001db'", ["a b", "a-", "a.b", "a.b/x"]),
        ("entry.namespace.startsWith('b')", ["b", "b/x", "b/x/y"]),
        ("entry.namespace in ['b', 'ab']", ["ab/x", "b", "b/x", "b/x/y"]),
        ("entry.encodedKey == 'b'", ["b"]),
        ("entry.encodedKey == 'b.x'", ["b/x"]),
        ("entry.encodedKey.startsWith('b.')", ["b/x", "b/x/y"]),
        ("entry.encodedKey == 'b' || entry.encodedKey.startsWith('b.')", ["b", "b/x", "b/x/y"]),
        ("entry.key == 'a.b'", ["a/x", "a/x/y", "a b", "a-", "a.b"]),
        ("entry.namespace == 'b' && entry.encodedKey.startsWith('b.x')", ["b/x", "b/x/y"]),
        ("entry.namespace == 'b' && entry.name.matches('x')", ["b/x", "b/x/y"]),
        ("entry.namespace == 'a' && entry.namespace == 'b'", []),
        ("entry.namespace == 'b' || entry.name == 'x'", NAMES),
        ("!(entry.namespace == 'b')", NAMES),
        ("entry.name == 'x'", NAMES),
        ("entry.contentType == 'b'", NAMES),
        ("entry.namespace == 'b' && entry.name + 'a' == 'xa'", NAMES),
    ],
)
def test_a_filter_reads_the_keys_that_may_pass(text: str, read: list[str]) -> None:
    range = entry_filter(text).screen.range
    assert [
        name for name in NAMES if store_key(ContentKey(tuple(name.split("/")))) in range
    ] == read


def test_a_filter_of_differences_reads_the_keys_that_may_pass() -> None:
    range = diff_filter("key.namespace == 'b'").screen.range
    assert (range.lower, range.upper) == (b"M\0b\x01", b"M\0b\x01\xff")


def test_a_listing_pauses_while_it_skips_entries() -> None:
    repository = morag.open("memory:", Settings(namespace_validation=False))
    keys = [ContentKey.of(f"key{number}") for number in range(1000)]
    repository.commit("main", [Put(key, Namespace.of(*key.elements)) for key in keys], "keys")
    listing = repository.contents.plain_entries(
        "main", Bounds(), Screen(verdict=lambda item: item[0] == "key7")
    )
    assert [entry.key for entry in listing] == [keys[7]]
    assert listing.has_pauses
    assert list(listing.with_pauses()).count(None) >= 4


@pytest.mark.parametrize("listing", ["entries", "entries with content", "differences"])
def test_only_keys_that_may_pass_are_judged(listing: str) -> None:
    repository = morag.open("memory:", Settings(namespace_validation=False))
    keys = [ContentKey(tuple(name.split("/"))) for name in NAMES]
    repository.references.create_branch("empty", "main")
    repository.commit("main", [Put(key, Namespace.of(*key.elements)) for key in keys], "keys")
    listings, main = Service(repository).listings, RequestedRef("main")
    judged = []

    def recording(text: str) -> KeyFilter:
        program = Program(text, DIFFS if listing == "differences" else ENTRIES)
        judge = program.verdict
        assert judge is not None

        def verdict(item: tuple[str, str]) -> bool | None:
            judged.append(item[0])
            return judge(item)

        program.verdict = verdict
        return KeyFilter(program)

    with (
        patch("morag.service.filters.entry_filter", recording),
        patch("morag.service.filters.diff_filter", recording),
    ):
        if listing == "differences":
            selection = KeySelection(filter="key.namespace == 'b'")
            differences = listings.diff(main, RequestedRef("empty"), selection, AS_TEXT)[2]
            keys = [key for batch in differences for key, _, _ in batch]
        else:
            selection = KeySelection(filter="entry.namespace == 'b'")
            with_content = listing == "entries with content"
            entries = listings.entries(main, selection, with_content=with_content)[1]
            keys = [entry.key for batch in entries for entry in batch]
        assert list(map(str, keys)) == ["b.x"]
    assert judged == ["b\x01x", "b\x01x\x01y"]

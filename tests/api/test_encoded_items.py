"""Items that are encoded once and kept have the bytes of msgspec's encoding of their structs.

Each request is made twice: the second response comes from what the first one has kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from morag import CommitMeta, ContentKey, Delete, Put, Repository, Settings
from morag.api.app import Api
from morag.api.http import Request
from morag.api.v1.structs import DiffsV1, EntriesV1, EntryV1, LogEntryV1, LogV1
from morag.backend.memory import MemoryBackend
from morag.errors import BadRequest
from morag.model.content import UDF, Content, check_content
from morag.rest import responses
from morag.rest.responses import KeyedContent, LogEntryView, ReferenceView
from morag.versions.world import World
from tests.format.test_contents import CONTENTS
from tests.wire.api_calls import answered

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.versions.listing import Listing

    History = list[tuple[CommitMeta, dict[ContentKey, Content]]]

ELEMENTS: Final = st.text('ab."\\/<ß\u2028\uff5e\U0001f600', min_size=1, max_size=3)
KEYS: Final = st.lists(ELEMENTS, min_size=1, max_size=3).map(lambda e: ContentKey(tuple(e)))
TEXTS: Final = st.text('a"\\\n\x00\x7fß\U0001f600', max_size=5)
METAS: Final = st.builds(
    CommitMeta,
    message=TEXTS,
    authors=st.tuples(TEXTS.filter(bool)) | st.just(()),
    properties=st.dictionaries(st.text('ab"\n', min_size=1, max_size=3), st.tuples(TEXTS)),
)


def is_valid(content: Content) -> bool:
    try:
        check_content(content)
    except BadRequest:
        return False
    return True


NEW_CONTENTS: Final = CONTENTS.map(lambda c: msgspec.structs.replace(c, id=None)).filter(is_valid)
HISTORIES: Final = st.lists(
    st.tuples(METAS, st.dictionaries(KEYS, NEW_CONTENTS, min_size=1, max_size=4)),
    min_size=1,
    max_size=4,
)
SMALL_STRIPES: Final = Settings(
    namespace_validation=False,
    max_incremental_index_bytes=200,
    min_index_segment_bytes=100,
    max_index_segment_bytes=400,
)
NO_CACHE: Final = msgspec.structs.replace(SMALL_STRIPES, cache_bytes=0)
SETTINGS: Final = st.sampled_from([SMALL_STRIPES, NO_CACHE])


class Scene:
    """A repository: `old` has the first of some commits, `main` has all."""

    def __init__(self, history: History, with_settings: Settings) -> None:
        self.repo = Repository(MemoryBackend(), with_settings, World())
        self.api = Api(self.repo)
        for meta, puts in history:
            there = self.repo.contents.get_all("main", list(puts))
            if there:
                self.repo.commit("main", [Delete(key) for key in there], "make room")
            self.repo.commit("main", [Put(key, content) for key, content in puts.items()], meta)
            if meta is history[0][0]:
                self.repo.references.create_branch("old", "main")

    def view(self, name: str) -> ReferenceView:
        return ReferenceView.of(self.repo.references.get(name))

    def check(self, path: str, query: str, expected: object) -> None:
        request = Request("GET", f"/api/{path}", query)
        for _ in range(2):
            assert answered(self.api, request).body == msgspec.json.encode(expected)

    def check_pages(
        self,
        path: str,
        names: tuple[str, str],
        limit: int,
        listing: Listing[Any],
        page: Callable[[tuple[Any, ...], str | None, bool], object],
    ) -> None:
        items, query = list(listing), {names[0]: f"{limit}"}
        for start in range(0, max(1, len(items)), limit):
            rest = items[start + limit :]
            token = listing.token_of(rest[0]) if rest else None
            expected = page(tuple(items[start : start + limit]), token, bool(rest))
            self.check(path, urlencode(query), expected)
            query[names[1]] = token or ""


V1_PAGES: Final = ("maxRecords", "pageToken")
V2_PAGES: Final = ("max-records", "page-token")


@settings(max_examples=30)
@given(HISTORIES, st.integers(1, 5), SETTINGS)
def test_pages_of_entries(history: History, limit: int, with_settings: Settings) -> None:
    scene = Scene(history, with_settings)
    listing, main = scene.repo.contents.entries("main"), scene.view("main")
    scene.check_pages(
        "v2/trees/main/entries",
        V2_PAGES,
        limit,
        listing,
        lambda items, token, more: responses.Entries(items, token, main, more),
    )
    scene.check_pages(
        "v1/trees/tree/main/entries",
        V1_PAGES,
        limit,
        listing,
        lambda items, token, more: EntriesV1(tuple(map(EntryV1.of, items)), token, more),
    )
    below = ContentKey(next(iter(history[0][1])).elements[:1])
    found = tuple(scene.repo.contents.entries("main", prefix=below))
    query = urlencode({"prefix-key": below.escaped})
    scene.check("v2/trees/main/entries", query, responses.Entries(found, None, main))


@settings(max_examples=30)
@given(HISTORIES, st.integers(1, 5), SETTINGS)
def test_pages_of_a_log(history: History, limit: int, with_settings: Settings) -> None:
    scene = Scene(history, with_settings)
    listing = scene.repo.history.log("main")
    scene.check_pages(
        "v2/trees/main/history",
        V2_PAGES,
        limit,
        listing,
        lambda items, *rest: responses.Log(tuple(map(LogEntryView.of, items)), *rest),
    )
    scene.check_pages(
        "v1/trees/tree/main/log",
        V1_PAGES,
        limit,
        listing,
        lambda items, *rest: LogV1(tuple(map(LogEntryV1.of, items)), *rest),
    )


@settings(max_examples=30)
@given(HISTORIES, SETTINGS)
def test_contents_and_diffs(history: History, with_settings: Settings) -> None:
    scene = Scene(history, with_settings)
    repo, main = scene.repo, scene.view("main")
    contents = repo.contents.get_all("main", list(repo.contents.keys("main")))
    query = "&".join(f"key={quote(key.escaped)}" for key in contents)
    found = tuple(KeyedContent(key, content) for key, content in contents.items())
    scene.check("v2/trees/main/contents", query, responses.Contents(found, main))
    key, content = next(iter(contents.items()))
    single = responses.SingleContent(content, main)
    scene.check(f"v2/trees/main/contents/{quote(key.escaped, safe='')}", "", single)
    diffs = tuple(repo.contents.diff("old", "main"))
    old = scene.view("old")
    scene.check("v2/trees/old/diff/main", "", responses.Diffs(diffs, None, old, main))
    scene.check("v1/diffs/old...main", "", DiffsV1(diffs))


def test_contents_that_are_kept_missing_large_or_repeated_come_in_the_requested_order() -> None:
    """Two large contents of the 100 that are looked up together are more than one batch has."""
    keys = [ContentKey.of(f"{number:03}") for number in range(300)]
    puts: dict[ContentKey, Content] = {
        key: UDF(sql_text="x" * (70_000 if number % 50 == 7 else 10))
        for number, key in enumerate(keys)
        if number % 3
    }
    scene = Scene([(CommitMeta(message="tables"), puts)], Settings(namespace_validation=False))
    contents = scene.repo.contents.get_all("main", keys)
    assert list(contents) == list(puts)
    for wanted in (keys[:90], keys[:150], keys[::-1], [*keys, *keys]):
        found = [KeyedContent(key, contents[key]) for key in dict.fromkeys(wanted) if key in puts]
        query = "&".join(f"key={key}" for key in wanted)
        expected = responses.Contents(tuple(found), scene.view("main"))
        scene.check("v2/trees/main/contents", query, expected)

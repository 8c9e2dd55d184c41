"""Filters that run without the library, or read only some keys, decide as the library does."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import morag
from morag.config import Settings
from morag.errors import BadRequest
from morag.index.keys import CONTENTS, store_key
from morag.model.content import IcebergTable, IcebergView
from morag.model.keys import ContentKey
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Put
from morag.model.references import Reference, ReferenceMetadata
from morag.model.results import LogEntry
from morag.service.filters import KeyFilter
from morag.service.filters.program import Program
from morag.service.filters.variables import DIFFS, ENTRIES, LOG, REFERENCES
from morag.service.listings import KeySelection
from morag.service.paging import USUAL_BYTES, Paging
from morag.service.ref_resolution import RequestedRef
from morag.service.service import Service
from tests.service.filter_texts import (
    PATHS,
    SOME_TIMES,
    TEXTS,
    TIMES,
    comparisons_of,
    filters_of,
    key_filters,
    literal,
    sizes_of,
    times_of,
)
from tests.service.items import AS_TEXT

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.service.filters.variables import Fields

TYPES = st.sampled_from(["ICEBERG_TABLE", "ICEBERG_VIEW", "NAMESPACE"])
ENTRY_FILTERS = filters_of(
    key_filters("entry")
    | comparisons_of(["entry.contentType"], st.sampled_from(["ICEBERG_TABLE", "NAMESPACE", "I"]))
)
COMMIT_FILTERS = filters_of(
    comparisons_of([f"commit.{f}" for f in ("author", "committer", "message", "hash")], TEXTS)
    | comparisons_of(["commit.signedOffBy"], TEXTS)
    | sizes_of(["commit.authors", "commit.allSignedOffBy"])
    | times_of(["commit.commitTime", "commit.authorTime"])
)
REFERENCE_FILTERS = filters_of(
    comparisons_of(["ref.name", "ref.hash"], TEXTS)
    | comparisons_of(["refType"], st.sampled_from(["BRANCH", "TAG", "B"]))
    | comparisons_of(["refMeta.commonAncestorHash", "ref.metadata.commonAncestorHash"], TEXTS)
    | comparisons_of(["commit.message", "refMeta.commitMetaOfHEAD.message"], TEXTS)
    | times_of(["commit.commitTime", "refMeta.numTotalCommits"])
)
METAS = st.builds(
    CommitMeta,
    message=TEXTS | st.just("lone \ud800"),
    authors=st.lists(TEXTS, max_size=2).map(tuple),
    signed_off_by=st.lists(TEXTS, max_size=2).map(tuple),
    author_time=st.none() | TIMES,
    hash=TEXTS,
    committer=st.none() | TEXTS,
    commit_time=st.none() | TIMES,
)
REFS = st.tuples(
    st.builds(Reference, st.sampled_from(["BRANCH", "TAG"]), TEXTS, TEXTS),
    st.none()
    | st.builds(
        ReferenceMetadata, head=METAS, total_commits=st.just(1), common_ancestor=st.none() | TEXTS
    ),
)


def library_alone(text: str, variables: Fields) -> Program:
    program = Program(text, variables)
    program.verdict, program.is_settled, program.keys = None, False, CONTENTS
    return program


def outcome(action: Callable[[], object]) -> object:
    try:
        return action()
    except BadRequest as refusal:
        return str(refusal)


def expect_same(text: str, variables: Fields, item: Any) -> None:
    fast = outcome(lambda: Program(text, variables)(item))
    assert fast == outcome(lambda: library_alone(text, variables)(item))


@given(ENTRY_FILTERS, PATHS, TYPES)
def test_entries_pass_or_fail_as_in_the_library(
    text: str, elements: tuple[str, ...], type: str
) -> None:
    expect_same(text, ENTRIES, ("\x01".join(elements), type))


@given(COMMIT_FILTERS, METAS)
def test_commits_pass_or_fail_as_in_the_library(text: str, meta: CommitMeta) -> None:
    expect_same(text, LOG, LogEntry(meta, "parent"))


@given(REFERENCE_FILTERS, REFS)
def test_references_pass_or_fail_as_in_the_library(
    text: str, item: tuple[Reference, ReferenceMetadata | None]
) -> None:
    expect_same(text, REFERENCES, item)


@pytest.mark.parametrize("operator", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("time", SOME_TIMES)
def test_times_are_compared_as_in_the_library(operator: str, time: str) -> None:
    text = f"commit.commitTime {operator} timestamp({literal(time)})"
    fast, slow = Program(text, LOG), library_alone(text, LOG)
    for other in SOME_TIMES:
        item = LogEntry(CommitMeta(message="", commit_time=other), "parent")
        assert outcome(lambda: fast(item)) == outcome(lambda: slow(item))  # noqa: B023


@given(key_filters("key"), PATHS)
def test_outside_its_range_a_filter_is_false(text: str, elements: tuple[str, ...]) -> None:
    try:
        range = Program(text, DIFFS).keys
    except BadRequest:
        return
    result = outcome(lambda: library_alone(text, DIFFS)(("\x01".join(elements), "")))
    assert result is False or store_key(ContentKey(elements)) in range


@given(PATHS, st.data())
def test_a_key_is_in_the_range_of_each_filter_that_it_passes(
    elements: tuple[str, ...], data: st.DataObject
) -> None:
    encoded = [element.replace(".", "\x1d") for element in elements]
    fields = {
        "key": ".".join(elements),
        "encodedKey": ".".join(encoded),
        "namespace": ".".join(encoded[:-1]),
    }

    def true_comparison() -> str:
        field = data.draw(st.sampled_from(list(fields)))
        value = fields[field].replace("\0", "\ufffd")
        start = value[: data.draw(st.integers(0, len(value)))]
        forms = ["key.{} == {}", "key.{0} in ['a', {1}]", "key.{0}.startsWith({2})"]
        form = data.draw(st.sampled_from(forms))
        return form.format(field, literal(value), literal(start))

    join = data.draw(st.sampled_from([" && ", " || "]))
    text = join.join(true_comparison() for _ in range(data.draw(st.integers(1, 3))))
    program = Program(text, DIFFS)
    assert program(("\x01".join(elements), ""))
    assert store_key(ContentKey(elements)) in program.keys


NAMES = ["a", "ab", "a.b", "a-", "b", "é", "\uffff", "😀"]
KEYS = [ContentKey(path) for depth in (1, 2, 3) for path in product(NAMES, repeat=depth)]


@pytest.fixture(scope="module")
def service() -> Service:
    """Branches `main` and `dev`, which differ in many keys."""
    repository = morag.open("memory:", Settings(namespace_validation=False))
    view = IcebergView(metadata_location="file", version_id=1, schema_id=1)
    table = IcebergTable(
        metadata_location="file", snapshot_id=1, schema_id=1, spec_id=1, sort_order_id=1
    )
    for start in range(0, len(KEYS), 100):
        puts = [Put(key, table if len(str(key)) % 2 else view) for key in KEYS[start : start + 100]]
        repository.commit("main", puts, "more keys")
    repository.references.create_branch("dev", "main")
    repository.commit("dev", [Delete(key) for key in KEYS[::3]], "fewer keys")
    return Service(repository)


OPTIONAL_KEYS = st.none() | st.sampled_from(KEYS)
BOUNDS = st.one_of(
    st.builds(KeySelection, min_key=OPTIONAL_KEYS, max_key=OPTIONAL_KEYS),
    st.builds(KeySelection, prefix=st.sampled_from(KEYS)),
    st.builds(KeySelection, keys=st.lists(st.sampled_from(KEYS), max_size=20).map(tuple)),
)
LIMITS = st.sampled_from([None, 5, 60])
FEW_BYTES = 10 * USUAL_BYTES
"""If more items pass, a listing is read twice."""
SELECTIVE = st.builds(
    "{}.{}{}{}".format,
    st.just("{0}"),
    st.sampled_from(["key", "encodedKey", "namespace"]),
    st.sampled_from([" == ", ".startsWith"]),
    st.sampled_from(KEYS)
    .flatmap(lambda key: st.sampled_from([str(key), f"{key.path}.", key.path, key.parent.path]))
    .map(lambda text: f"({literal(text)})"),
)
"""Filters that leave a range of keys. The variable is left out."""


def all_pages(list_page: Callable[[Paging], Any], limit: int | None) -> object:
    """The items and the token of each page, or the message of a refusal."""
    pages: list[tuple[list[Any], str | None]] = []
    token: str | None = None
    with patch("morag.service.paging._KEPT_BYTES", FEW_BYTES):
        while not pages or token:
            found = list_page(Paging(limit, token))
            try:
                items = [item for batch in found for item in batch]
            except BadRequest as refusal:
                return pages, str(refusal)
            token = found.token
            pages.append((items, token))
    return pages


@given(
    SELECTIVE.map(lambda text: text.format("entry")) | ENTRY_FILTERS,
    BOUNDS,
    LIMITS,
    st.booleans(),
    st.integers(0, 2),
)
def test_entries_come_in_the_same_pages_as_with_the_library_alone(
    service: Service,
    text: str,
    bounds: KeySelection,
    limit: int | None,
    with_content: bool,
    depth: int,
) -> None:
    def list_page(paging: Paging) -> Any:
        selection = replace(bounds, filter=text, paging=paging)
        ref = RequestedRef("main")
        return service.listings.entries(ref, selection, with_content=with_content, depth=depth)[1]

    fast = outcome(lambda: all_pages(list_page, limit))
    with patch("morag.service.filters.entry_filter", lambda t: alone_by_key(t, ENTRIES)):
        assert fast == outcome(lambda: all_pages(list_page, limit))


@given(
    SELECTIVE.map(lambda text: text.format("key")) | key_filters("key"),
    BOUNDS,
    LIMITS,
)
def test_diffs_come_in_the_same_pages_as_with_the_library_alone(
    service: Service, text: str, bounds: KeySelection, limit: int | None
) -> None:
    def list_page(paging: Paging) -> Any:
        selection = replace(bounds, filter=text, paging=paging)
        main, dev = RequestedRef("main"), RequestedRef("dev")
        return service.listings.diff(main, dev, selection, AS_TEXT)[2]

    fast = outcome(lambda: all_pages(list_page, limit))
    with patch("morag.service.filters.diff_filter", lambda t: alone_by_key(t, DIFFS)):
        assert fast == outcome(lambda: all_pages(list_page, limit))


def alone_by_key(text: str, variables: Fields) -> KeyFilter:
    return KeyFilter(library_alone(text, variables))

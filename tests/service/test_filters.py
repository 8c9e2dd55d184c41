"""The items that filters keep, by the variables of each listing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from morag.model.keys import ContentKey
from morag.model.references import Reference, ReferenceMetadata
from morag.model.results import Diff, LogEntry
from morag.service import filters
from tests.service.items import (
    COMMITS,
    ENTRIES,
    EVERYTHING,
    MAIN,
    METADATA,
    NAMESPACES,
    RELEASE,
    TABLES,
    VIEWS,
    commit,
    diff,
    entry,
    put_table,
)

NOTHING: list[str] = []


def entries(filter: str) -> list[str]:
    keep = filters.entry_filter(filter)
    return [name for name, entry in ENTRIES.items() if keep(entry)]


def commits(filter: str) -> list[str]:
    keep = filters.log_filter(filter)
    return [entry.meta.message for entry in COMMITS if keep(entry)]


class TestEntries:
    @pytest.mark.parametrize(
        ("filter", "kept"),
        [
            ("entry.contentType == 'ICEBERG_TABLE'", TABLES),
            ("entry.contentType in ['ICEBERG_VIEW', 'NAMESPACE']", [*NAMESPACES, *VIEWS]),
            ("entry.contentType=='NAMESPACE' && size(entry.keyElements) == 1", ["ns1", "ns2"]),
            ("entry.namespace == 'ns1'", ["ns1.sub", "ns1.t1"]),
            ("entry.namespace.startsWith('ns1')", ["ns1.sub", "ns1.sub.t3", "ns1.t1"]),
            ("entry.namespaceElements == ['ns1', 'sub']", ["ns1.sub.t3"]),
            ("entry.namespaceElements.size() == 0", ["ns1", "ns2", "top"]),
            ("entry.name == 't1'", ["ns1.t1"]),
            ("entry.key == 'ns1.t1'", ["ns1.t1"]),
            ("entry.encodedKey == 'ns1.t1'", ["ns1.t1"]),
            ("size(entry.key) < 4", ["ns1", "ns2", "top"]),
            ("size(entry.keyElements) == 1", ["ns1", "ns2", "top"]),
            ("entry.keyElements[0] == 'ns2'", ["ns2", "ns2.v1"]),
            ("entry.contentType == 'ICEBERG_VIEW' || entry.name.matches('^t')", [*TABLES, *VIEWS]),
        ],
    )
    def test_entries_are_filtered_by_type_and_key(self, filter: str, kept: list[str]) -> None:
        assert entries(filter) == kept

    @pytest.mark.parametrize(
        ("filter", "kept"),
        [
            ("true", EVERYTHING),
            ("false", NOTHING),
            ("1 == 1 && entry.name != ''", EVERYTHING),
            ("!(entry.name == 't1')", [name for name in EVERYTHING if name != "ns1.t1"]),
            ("entry.name in ['t1', 'top']", ["ns1.t1", "top"]),
            ("entry.name.size() == 2", ["ns1.sub.t3", "ns1.t1", "ns2.v1"]),
            ("entry.name.contains('o') ? true : false", ["top"]),
            ("entry.keyElements.all(e, e.size() > 2)", [*NAMESPACES, "top"]),
            ("entry.keyElements.exists(e, e == 'sub')", ["ns1.sub", "ns1.sub.t3"]),
            ("entry.keyElements.exists_one(e, e == 'ns2')", ["ns2", "ns2.v1"]),
            ("entry.keyElements.filter(e, e == 'ns2').size() == 1", ["ns2", "ns2.v1"]),
            ("entry.keyElements.map(e, e + 'x')[0] == 'ns2x'", ["ns2", "ns2.v1"]),
            ("has(entry.name)", EVERYTHING),
            ("entry.name.matches('^t[0-9]$')", ["ns1.sub.t3", "ns1.t1"]),
            ("entry.name.matches('o')", ["top"]),
            ("entry.name + '!' == 't1!'", ["ns1.t1"]),
            ("entry.keyElements + ['x'] == ['top', 'x']", ["top"]),
            ("entry.name < 'ns3'", ["ns1", "ns2"]),
            ("string(1) == '1' && int('2') == 2 && double('1.5') > 1.0", EVERYTHING),
            ('entry.name == "t1"', ["ns1.t1"]),
            ("entry.name == r't1'", ["ns1.t1"]),
            ("duration('1h') > duration('30m')", EVERYTHING),
            ("timestamp('2020-01-01T00:00:00Z').getFullYear() == 2020", EVERYTHING),
            ("{'a': 1}['a'] == 1", EVERYTHING),
            ("5 % 2 == 1 && 7 / 2 == 3", EVERYTHING),
            ("'a' == 'a' // comment", EVERYTHING),
            (".entry . name == 't1'", ["ns1.t1"]),
        ],
    )
    def test_the_language_is_complete(self, filter: str, kept: list[str]) -> None:
        assert entries(filter) == kept

    @pytest.mark.parametrize(
        "filter",
        ["entry.name == 1", "entry == null", "'a' == 1", "[1] == ['a']", "entry.name == null"],
    )
    def test_comparing_different_types_is_false_and_no_error(self, filter: str) -> None:
        assert entries(filter) == NOTHING

    @pytest.mark.parametrize(
        "filter", ["1 == 1.0", "1u == 1", "entry == entry", "entry in [entry]", "null == null"]
    )
    def test_equal_answers_are_equal(self, filter: str) -> None:
        assert entries(filter) == EVERYTHING

    @pytest.mark.parametrize(
        "filter",
        [
            "[entry][0].name == 't1'",
            "{'a': entry}.a.name == 't1'",
            "(true ? entry : null).name == 't1'",
            "dyn(entry).name == 't1'",
            "[entry, 1].exists(e, e != 1 && e.name == 't1')",
        ],
    )
    def test_an_entry_may_be_used_as_a_value(self, filter: str) -> None:
        assert entries(filter) == ["ns1.t1"]

    def test_an_error_that_cannot_change_the_result_is_ignored(self) -> None:
        assert entries("1/0 == 1 && false || entry.name == 't1'") == ["ns1.t1"]

    def test_the_variable_of_a_macro_hides_that_of_the_listing(self) -> None:
        assert entries("['t1'].exists(entry, entry == 't1')") == EVERYTHING

    def test_dots_within_elements_are_plain_in_the_key_and_encoded_elsewhere(self) -> None:
        dotted = entry("a.b", "c.d")
        for filter in (
            "entry.key == 'a.b.c.d'",
            r"entry.encodedKey == 'a\u001db.c\u001dd'",
            r"entry.namespace == 'a\u001db'",
            "entry.name == 'c.d'",
            "entry.keyElements == ['a.b', 'c.d']",
        ):
            assert filters.entry_filter(filter)(dotted)

    def test_lengths_count_characters(self) -> None:
        assert filters.entry_filter("size(entry.name) == 2")(entry("é😀"))


class TestDiffs:
    @pytest.mark.parametrize(
        ("filter", "kept"),
        [
            ("key.name == 't1'", ["ns1.t1", "ns2.t1"]),
            ("key.namespace == 'ns2'", ["ns2.t1"]),
            ("key.key == 'ns1.t1' && size(key.keyElements) == 2", ["ns1.t1"]),
            ("key.encodedKey.endsWith('p')", ["top"]),
            ("key.namespaceElements == []", ["top"]),
        ],
    )
    def test_diffs_are_filtered_by_key(self, filter: str, kept: list[str]) -> None:
        keep = filters.diff_filter(filter)
        assert [name for name in ("ns1.t1", "ns2.t1", "top") if keep(diff(name))] == kept

    def test_the_diff_of_a_deleted_key_is_filtered(self) -> None:
        gone = Diff(ContentKey.of("a"), put_table("a").content, None)
        assert filters.diff_filter("key.name == 'a'")(gone)


class TestLog:
    @pytest.mark.parametrize(
        ("filter", "kept"),
        [
            ("commit.author == 'alice'", ["first", "third"]),
            ("commit.author == 'carol' || 'carol' in commit.authors", ["third"]),
            ("commit.authors.exists(a, a == 'carol')", ["third"]),
            ("commit.committer == ''", ["first", "second", "third", "fourth"]),
            ("commit.message == 'second'", ["second"]),
            ("commit.message.contains('ir')", ["first", "third"]),
            ("size(commit.message) > 5", ["second", "fourth"]),
            ("commit.hash == 'hash of second'", ["second"]),
            ("commit.parentCommitHashes == ['nope']", NOTHING),
            ("commit.signedOffBy == 'dave'", ["third"]),
            ("commit.signedOffBy == null", ["first", "second", "fourth"]),
            ("has(commit.signedOffBy)", ["third"]),
            ("'erin' in commit.allSignedOffBy", ["third"]),
        ],
    )
    def test_the_log_is_filtered_by_commit_metadata(self, filter: str, kept: list[str]) -> None:
        assert commits(filter) == kept

    @pytest.mark.parametrize(
        ("filter", "kept"),
        [
            ("'job' in commit.properties", ["first", "fourth"]),
            ("has(commit.properties.job) && commit.properties.job == 'j1'", ["first"]),
            ("'job' in commit.properties && commit.properties['job'] == 'j2'", ["fourth"]),
            (
                "'job' in commit.allProperties && commit.allProperties['job'] == ['j2', 'j3']",
                ["fourth"],
            ),
            ("commit.allProperties.all(name, name == 'job')", [e.meta.message for e in COMMITS]),
            ("commit.properties == {'job': 'j2'}", ["fourth"]),
        ],
    )
    def test_the_log_is_filtered_by_properties(self, filter: str, kept: list[str]) -> None:
        assert commits(filter) == kept

    @pytest.mark.parametrize(
        ("filter", "kept"),
        [
            ("operations.exists(op, op.type == 'DELETE')", ["third", "fourth"]),
            ("operations.all(op, op.type == 'PUT')", ["first", "second"]),
            ("operations.exists(op, op.key == 'ns1.t1')", ["first"]),
            ("operations.exists(op, op.encodedKey == 'ns1.t1')", ["first"]),
            ("operations.exists(op, op.name == 'top')", ["third", "fourth"]),
            ("operations.exists(op, op.namespace == 'ns1')", ["first", "third"]),
            ("operations.exists(op, op.namespaceElements == ['ns1','sub'])", ["second"]),
            ("operations.exists(op, op.keyElements[0] == 'ns2')", ["first", "second"]),
            (
                "operations.exists(op, op.type == 'PUT' && op.content.type == 'ICEBERG_VIEW')",
                ["second"],
            ),
            ("operations.exists(op, has(op.content) && op.content.id == 'v')", ["second"]),
            ("operations.exists(op, op.content == null)", ["third", "fourth"]),
            ("operations.filter(op, op.type == 'PUT').size() == 3", ["first"]),
            ("operations.map(op, op)[0].name == 'top'", ["third", "fourth"]),
            ("operations.exists(a, operations.exists(b, a != b))", ["first", "second", "third"]),
            (
                "operations.exists(a, operations.exists_one(b, a == b && b.name == 'v1'))",
                ["second"],
            ),
            ("operations == []", NOTHING),
        ],
    )
    def test_the_log_is_filtered_by_operations(self, filter: str, kept: list[str]) -> None:
        assert commits(filter) == kept

    def test_a_commit_has_no_operations_unless_they_were_fetched(self) -> None:
        bare = LogEntry(COMMITS[0].meta, "parent")
        assert filters.log_filter("size(operations) == 0")(bare)
        assert not filters.log_filter("operations.exists(op, op.type == 'PUT')")(bare)

    @pytest.mark.parametrize(
        "filter",
        [
            "commit.commitTime > timestamp('2024-01-01T00:00:00Z')",
            "timestamp(commit.commitTime) > timestamp('2024-01-01T00:00:00Z')",
            "commit.commitTime - commit.authorTime < duration('13h')",
            "commit.commitTime.getFullYear() == 2024",
            "commit.commitTime.getHours('Europe/Berlin') == 14",
            "string(commit.commitTime).startsWith('2024-05')",
            "[commit][0].commitTime == timestamp('2024-05-01T12:00:00Z')",
        ],
    )
    def test_times_are_timestamps(self, filter: str) -> None:
        assert filters.log_filter(filter)(commit("on May Day"))
        assert not filters.log_filter(f"!({filter})")(commit("on May Day"))

    def test_times_are_compared_to_the_nanosecond(self) -> None:
        late = commit("late", time="2024-05-01T12:00:00.123456789Z")
        for filter, kept in {
            "commit.commitTime == timestamp('2024-05-01T12:00:00.123456789Z')": True,
            "commit.commitTime > timestamp('2024-05-01T12:00:00.123456788Z')": True,
            "commit.commitTime > timestamp('2024-05-01T12:00:00.123456789Z')": False,
        }.items():
            assert filters.log_filter(filter)(late) is kept

    def test_odd_characters_in_messages_are_accepted(self) -> None:
        odd = commit("cut\0here \ud800")
        assert not filters.log_filter("commit.message == 'cut'")(odd)
        assert filters.log_filter("commit.message.startsWith('cut')")(odd)


class TestReferences:
    @pytest.mark.parametrize(
        ("filter", "kept"),
        [
            ("ref.name.startsWith('ma')", ["main"]),
            ("refType == 'TAG'", ["release"]),
            ("refType == 'BRANCH' && ref.name != 'x'", ["main"]),
            ("ref.hash == 'hash of main'", ["main"]),
            ("ref == null", NOTHING),
        ],
    )
    @pytest.mark.parametrize("metadata", [METADATA, None], ids=["fetched", "bare"])
    def test_references_are_filtered_by_name_type_and_hash(
        self, filter: str, kept: list[str], metadata: ReferenceMetadata | None
    ) -> None:
        keep = filters.reference_filter(filter)
        assert [ref.name for ref in (MAIN, RELEASE) if keep(ref, metadata)] == kept

    @pytest.mark.parametrize(
        "filter",
        [
            "commit.message == 'third'",
            "commit.author == 'alice'",
            "refMeta.numTotalCommits == 3",
            "refMeta.numCommitsAhead > refMeta.numCommitsBehind",
            "refMeta.commonAncestorHash == 'hash of first'",
            "refMeta.commitMetaOfHEAD.message == 'third'",
            "refMeta.commitMetaOfHEAD == commit",
            "has(ref.metadata)",
            "ref.metadata.numTotalCommits == 3",
            "commit.commitTime > timestamp('2020-01-01T00:00:00Z')",
        ],
    )
    def test_references_are_filtered_by_metadata_if_it_was_fetched(self, filter: str) -> None:
        keep = filters.reference_filter(filter)
        assert keep(MAIN, METADATA)

    @pytest.mark.parametrize(
        "filter",
        [
            "commit.message == ''",
            "commit.author == null",
            "commit.commitTime == null",
            "refMeta.numTotalCommits == null",
            "refMeta.commitMetaOfHEAD.authors == []",
            "ref.metadata == null",
            "!has(ref.metadata) && !has(refMeta.numCommitsAhead) && !has(commit.author)",
            "commit.message != 'hello world'",
        ],
    )
    def test_without_metadata_references_have_an_empty_commit(self, filter: str) -> None:
        keep = filters.reference_filter(filter)
        assert keep(MAIN, None)
        assert not keep(MAIN, METADATA) or "hello" in filter

    def test_a_reference_without_a_name_has_an_empty_one(self) -> None:
        keep = filters.reference_filter("ref.name == null && refType == 'DETACHED'")
        assert keep(Reference("DETACHED", None, "1234"), None)


def test_a_filter_stays_compiled_for_the_next_page() -> None:
    for compiled in (
        filters.entry_filter,
        filters.log_filter,
        filters.diff_filter,
        filters.reference_filter,
    ):
        assert compiled("1 + 1 == 2") is compiled("1 + 1 == 2")
        assert compiled.cache_info().maxsize is not None


def test_a_filter_may_be_shared_by_threads() -> None:
    keep = filters.entry_filter("entry.keyElements.exists(e, e == entry.name) && entry.name == '7'")
    items = [entry("ns", str(n % 10)) for n in range(2000)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(keep, items)) == [n % 10 == 7 for n in range(2000)]


def test_only_fields_that_the_filter_mentions_are_read() -> None:
    class Bare:
        meta = COMMITS[0].meta

    assert filters.log_filter("commit.author == 'alice'")(Bare())  # type: ignore[arg-type]

"""Invalid filters are bad requests, if possible before they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morag.errors import BadRequest
from morag.service import filters
from tests.service.items import COMMITS, MAIN, METADATA, commit, entry

if TYPE_CHECKING:
    from collections.abc import Callable

COMPILED = [
    filters.entry_filter,
    filters.log_filter,
    filters.diff_filter,
    filters.reference_filter,
]


class TestBeforeTheyRun:
    """Without any item: an empty listing must not hide a mistake."""

    @pytest.mark.parametrize("compiled", COMPILED)
    @pytest.mark.parametrize(
        "filter",
        ["this is not CEL", "(((", "true)", "'a", "1 ==", "[1,,2]", "a b", "true && ", "@", "if"],
    )
    def test_a_filter_that_cannot_be_parsed_is_refused(
        self, compiled: Callable[[str], object], filter: str
    ) -> None:
        with pytest.raises(BadRequest, match=r"^Filter cannot be read at line 1, column \d+: "):
            compiled(filter)

    def test_the_position_of_a_syntax_error_is_reported(self) -> None:
        with pytest.raises(BadRequest, match="line 2, column 3: Syntax error"):
            filters.entry_filter("true &&\n  )")

    @pytest.mark.parametrize("compiled", COMPILED)
    @pytest.mark.parametrize("name", ["nope", "name", "string", "google.protobuf.Duration"])
    def test_an_unknown_variable_is_refused(
        self, compiled: Callable[[str], object], name: str
    ) -> None:
        with pytest.raises(BadRequest, match=f"no variable '{name.partition('.')[0]}'"):
            compiled(f"{name} == 1")

    @pytest.mark.parametrize(
        ("compiled", "field"),
        [
            (filters.entry_filter, "entry.foo"),
            (filters.entry_filter, "entry.contentId"),
            (filters.diff_filter, "key.contentType"),
            (filters.log_filter, "commit.nope"),
            (filters.log_filter, "operations[0].nope"),
            (filters.log_filter, "operations[0].content.nope"),
            (filters.log_filter, "operations.map(o, o.content)[0].nope"),
            (filters.reference_filter, "ref.nope"),
            (filters.reference_filter, "ref.type"),
            (filters.reference_filter, "refMeta.commitMetaOfHEAD.nope"),
        ],
    )
    def test_an_unknown_field_is_refused(
        self, compiled: Callable[[str], object], field: str
    ) -> None:
        for filter in (f"{field} == 1", f"false && {field} == 1", f"has({field})"):
            with pytest.raises(BadRequest, match=r"there is no field '.*', only "):
                compiled(filter)

    @pytest.mark.parametrize(
        "filter",
        [
            "entry.name.nope == 1",
            "entry.keyElements.nope == 1",
            "entry.keyElements.exists(e, e.nope == 1)",
            "has(entry.name.nope)",
        ],
    )
    def test_a_field_of_a_value_without_fields_is_refused(self, filter: str) -> None:
        with pytest.raises(BadRequest, match=r"has no fields, so no 'nope'"):
            filters.entry_filter(filter)

    @pytest.mark.parametrize(
        "filter", ["entry.name.foo()", "foo(1)", "'a'.charAt(0) == 'a'", "[1].exists(x)"]
    )
    def test_an_unknown_function_is_refused(self, filter: str) -> None:
        with pytest.raises(BadRequest, match=r"there is no function '(foo|charAt|exists)'"):
            filters.entry_filter(filter)

    @pytest.mark.parametrize(
        "filter",
        [
            "entry.name.startsWith(1)",
            "startsWith(entry.name, 'a')",
            "entry.name.startsWith('a', 'b')",
            "size(1) == 1",
            "size(entry) == 1",
            "size() == 1",
            "entry.name < 1",
            "entry.name < null",
            "1 < 2.0",
            "1 + 'a' == 'a'",
            "entry.keyElements + [1] == []",
            "1 in ['a']",
            "entry.name[0] == 'a'",
            "entry['name'] == 'a'",
            "true && 1",
            "!1",
            "1 ? true : false",
            "(true ? 1 : 'a') == 1",
            "string(entry) == ''",
            "-'a' == 'a'",
            "entry.keyElements.all(e, 1)",
            "timestamp('2024-01-01T00:00:00Z') == '2024-01-01T00:00:00Z'",
        ],
    )
    def test_a_wrong_type_is_refused(self, filter: str) -> None:
        with pytest.raises(BadRequest, match="cannot be applied to"):
            filters.entry_filter(filter)

    def test_the_position_of_a_wrong_type_is_reported(self) -> None:
        with pytest.raises(
            BadRequest, match=r"at character 22: 'startsWith' cannot be applied to string.\(int\)"
        ):
            filters.entry_filter("entry.name.startsWith(1)")

    @pytest.mark.parametrize(
        "filter", ["'abc'", "1", "null", "entry.name", "entry", "[entry]", "{'a': null}['a']"]
    )
    def test_a_filter_of_another_type_than_bool_is_refused(self, filter: str) -> None:
        with pytest.raises(BadRequest, match=r"must be true or false, but is an? "):
            filters.entry_filter(filter)

    @pytest.mark.parametrize("filter", ["operations", "commit"])
    def test_the_variables_themselves_are_no_filters(self, filter: str) -> None:
        with pytest.raises(BadRequest, match="must be true or false"):
            filters.log_filter(filter)

    def test_objects_cannot_be_constructed(self) -> None:
        with pytest.raises(BadRequest, match=r"'google\.protobuf\.Duration' is not a type"):
            filters.entry_filter("google.protobuf.Duration{seconds: 1} == duration('1s')")

    @pytest.mark.parametrize("pattern", ["(", "a**", r"\\1", "(?=a)"])
    def test_an_invalid_pattern_is_refused(self, pattern: str) -> None:
        with pytest.raises(BadRequest, match="invalid regular expression"):
            filters.entry_filter(f"false && entry.name.matches('{pattern}')")

    def test_a_computed_pattern_is_refused(self) -> None:
        with pytest.raises(BadRequest, match="pattern of 'matches' must be a literal"):
            filters.entry_filter("entry.name.matches(entry.key)")

    def test_a_too_large_number_is_refused(self) -> None:
        with pytest.raises(BadRequest, match="invalid int literal"):
            filters.entry_filter("9223372036854775808 == 0")

    def test_a_lone_surrogate_is_refused(self) -> None:
        with pytest.raises(BadRequest, match="valid Unicode"):
            filters.entry_filter("entry.name == '\ud800'")


class TestAsTheyRun:
    @pytest.mark.parametrize(
        ("filter", "message"),
        [
            ("1/0 == 1", "divide by zero"),
            ("1 % 0 == 1", "modulus by zero"),
            ("entry.keyElements[5] == 'x'", "there is no element 5 in a list of 2"),
            ("entry.keyElements[-1] == 'x'", "there is no element -1 in a list of 2"),
            ("{'a': 1}['b'] == 1", 'there is no "b" in the map'),
            ("{'a': 1}.b == 1", 'there is no "b" in the map'),
            ("{'a': 1, 'a': 2}.a == 1", "duplicate key"),
            ("9223372036854775807 + 1 == 0", "integer overflow"),
            ("-9223372036854775807 - 2 == 0", "integer overflow"),
            ("int('x') == 1", "cannot convert"),
            ("timestamp('x') == timestamp('y')", "Timestamp conversion failed"),
            ("timestamp('9999-12-31T23:59:59Z') + duration('1h') == timestamp(0)", "overflow"),
            (r"string(b'\xff') == 'a'", "malformed UTF-8"),
            ("dyn(entry.name) > 1", "wrong type"),
            ("dyn(entry).nope == 1", 'there is no "nope" in the map'),
        ],
    )
    def test_mistakes_of_a_filter_have_readable_messages(self, filter: str, message: str) -> None:
        keep = filters.entry_filter(filter)
        with pytest.raises(BadRequest) as refusal:
            keep(entry("ns1", "t1"))
        assert str(refusal.value).startswith("Filter fails: ")
        assert message in str(refusal.value)
        assert "\n" not in str(refusal.value)

    @pytest.mark.parametrize("value", ["null", "1", "'a'", "[]", "{}", "b'a'", "type(1)", "1.5"])
    def test_a_filter_that_evaluates_to_another_type_than_bool_is_refused(self, value: str) -> None:
        keep = filters.entry_filter(f"dyn({value})")
        with pytest.raises(BadRequest, match="Filter fails: "):
            keep(entry("a"))

    @pytest.mark.parametrize("value", ["true", "false"])
    def test_a_dynamic_filter_that_evaluates_to_a_bool_is_fine(self, value: str) -> None:
        assert filters.entry_filter(f"dyn({value})")(entry("a")) is (value == "true")

    @pytest.mark.parametrize(
        "filter", ["commit.properties['job'] == 'j1'", "commit.properties.job == 'j1'"]
    )
    def test_a_missing_property_is_an_error_of_the_filter(self, filter: str) -> None:
        with pytest.raises(BadRequest, match='there is no "job" in the map'):
            filters.log_filter(filter)(commit("without a job"))

    def test_a_delete_has_no_content(self) -> None:
        keep = filters.log_filter("operations.all(op, op.content.type == 'ICEBERG_TABLE')")
        with pytest.raises(BadRequest, match="a field of null was selected"):
            keep(COMMITS[3])

    @pytest.mark.parametrize(
        "filter", ["refMeta.numTotalCommits > 0", "commit.author.startsWith('a')"]
    )
    def test_fields_that_were_not_fetched_cannot_be_used(self, filter: str) -> None:
        keep = filters.reference_filter(filter)
        assert keep(MAIN, METADATA)
        with pytest.raises(BadRequest, match="got null"):
            keep(MAIN, None)

    def test_a_mistake_leaves_the_filter_usable(self) -> None:
        keep = filters.entry_filter("entry.keyElements[1] == 't1'")
        with pytest.raises(BadRequest):
            keep(entry("top"))
        assert keep(entry("ns1", "t1"))


@pytest.mark.parametrize("text", ["commit" + ".a" * 500, "1" + " + 1" * 500, "(" * 300])
def test_a_mistake_without_a_position_is_reported_without_one(text: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        filters.log_filter(text)
    assert str(refusal.value) == "Filter cannot be read: it is nested too deeply"


WORDS = st.sampled_from(
    [
        *("commit", "operations", "author", "message", "commitTime", "properties", "x", "o"),
        *("commit.author", "commit.message", "operations[0]", "has", "size", "matches", "dyn"),
        *("exists", "all", "map", "filter", "timestamp", "duration", "string", "bytes", "int"),
        *"()[]{}.,?:!<>-+*/%@",
        *("==", "!=", "&&", "||", "in", "true", "false", "null", "0", "1", "1.5", "1u", "1e999"),
        *(
            "'a'",
            '"é"',
            "b'\\xff'",
            "'2020-01-01T00:00:00Z'",
            "'''",
            "\\",
            "['a'][0]",
            "{'a':null}",
        ),
    ]
)
SENTENCES = st.sampled_from(
    [
        "commit.author == 'x'",
        "operations.exists(o, o.key == 'a.b')",
        "commit.properties['job'] == 'b'",
        "[1,2].map(x, x * 2)[0] == 2",
        "string(b'\\xff') == 'a'",
        "commit.commitTime > timestamp(commit.message)",
        "dyn(commit)",
        "dyn(null)",
    ]
)


@given(st.lists(WORDS | SENTENCES, min_size=1, max_size=9).map(" ".join))
def test_any_text_is_a_bool_or_a_bad_request(text: str) -> None:
    try:
        keep = filters.log_filter(text)
        answers = [keep(commit) for commit in COMMITS]
    except BadRequest as refusal:
        assert str(refusal).startswith("Filter ")
    else:
        assert all(answer is True or answer is False for answer in answers)

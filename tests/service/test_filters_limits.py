"""Filters that would take too much time or memory, or crash the interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

from morag.errors import BadRequest
from morag.model.operations import Delete
from morag.service import filters
from morag.service.filters.cost import MOST_CHARACTERS
from morag.service.filters.patterns import pattern_weight
from tests.service.items import commit, entry, key, put_table

HUNDRED = str(list(range(100)))


def expect_too_expensive(filter: str) -> None:
    with pytest.raises(BadRequest, match="Filter is too expensive"):
        filters.log_filter(filter)


class TestLengthAndDepth:
    def test_a_long_filter_is_fine_up_to_the_limit(self) -> None:
        shortest = "entry.name in ['']"
        filler = "x" * (MOST_CHARACTERS - len(shortest))
        assert filters.entry_filter(f"entry.name in ['{filler}']")(entry(filler))
        with pytest.raises(BadRequest, match="at most 4096 are allowed"):
            filters.entry_filter(f"entry.name in ['{filler}x']")

    @pytest.mark.parametrize(
        "filter",
        [
            "(" * 1000,
            "(" * 1000 + "true" + ")" * 1000,
            "!(" * 1000 + "true" + ")" * 1000,
            "[" * 1000 + "]" * 1000 + " == []",
            "{1:" * 500 + "1" + "}" * 500 + " == {}",
            "true ? true : " * 200 + "true",
            "size(" * 300 + "1" + ")" * 300,
            "entry" + ".a" * 1000,
            "entry" + "[0]" * 1000,
            "1" + "+1" * 1000 + " == 1",
            "[1].all(x, " * 200 + "true" + ")" * 200,
            "[1]" + ".map(x, x)" * 200 + " == []",
        ],
        ids=lambda text: text[:16],
    )
    def test_deep_nesting_is_refused(self, filter: str) -> None:
        with pytest.raises(BadRequest):
            filters.entry_filter(filter)

    def test_the_depth_of_a_hand_written_filter_is_fine(self) -> None:
        filter = "(" * 12 + "entry.name == 'a'" + ")" * 12
        assert filters.entry_filter(filter)(entry("a"))
        assert filters.entry_filter("!" * 1000 + "(entry.name == 'a')")(entry("a"))

    def test_many_alternatives_are_fine(self) -> None:
        filter = " || ".join(f"entry.name == 'table{n}'" for n in range(120))
        assert filters.entry_filter(filter)(entry("table119"))

    def test_no_filter_crashes_the_interpreter(self) -> None:
        """In a child process, because a stack overflow in native code cannot be caught."""
        script = """
import sys
from morag.errors import BadRequest
from morag.service import filters
from morag.service.filters import cost

bad = 0
nested = [
    ("(", "", ""), ("(", "true", ")"), ("!", "true", ""), ("!(", "true", ")"), ("-", "1", ""),
    ("[", "", ""), ("[", "", "]"), ("{1:", "1", "}"), ("a.", "a", ""), ("true?", "1", ":1"),
    ("size(", "1", ")"), ("[1].all(x,", "true", ")"), ("1+", "1", ""), ("a{b:", "1", "}"),
]
broken = [("'", "", ""), ("true||", "", ""), (chr(0), "", ""), (chr(92), "", ""), ("`", "", "")]
for limit, parts in (
    (cost.MOST_CHARACTERS, nested + broken),
    (10**9, nested),  # With nothing but the library's own limits.
):
    cost.MOST_CHARACTERS = limit
    for part, middle, end in parts:
        for count in (100, 1000, 50_000 // len(part), 100_000):
            try:
                filters.entry_filter(part * count + middle + end * count)
            except BadRequest:
                bad += 1
            else:
                assert part == "!", (part, count)
print(bad)
"""
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) >= 4 * (14 + 5 + 14) - 8

    def test_null_results_leak_no_references(self) -> None:
        """The library would lose a reference to None for each null result."""
        script = """
import sys
from morag.errors import BadRequest
from morag.model.keys import ContentKey
from morag.model.results import Entry
from morag.service import filters

keep = filters.entry_filter("dyn(null)")
before = sys.getrefcount(None)
for _ in range(20_000):
    try:
        keep(Entry(ContentKey.of("a"), "NAMESPACE", ""))
    except BadRequest:
        pass
assert abs(sys.getrefcount(None) - before) < 1000, (before, sys.getrefcount(None))
"""
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


class TestLoops:
    @pytest.mark.parametrize(
        "filter",
        [
            f"{HUNDRED}.all(x, {HUNDRED}.all(y, true))",
            f"{HUNDRED}.all(x, {HUNDRED}.all(y, {HUNDRED}.all(z, true)))",
            f"{HUNDRED}.map(x, {HUNDRED}.map(y, x * y)).size() == 100",
            f"{HUNDRED}.filter(x, {HUNDRED}.exists(y, y == x)).size() == 100",
            "operations.all(a, operations.all(b, operations.all(c, true)))",
            f"operations.all(a, {HUNDRED}.all(x, a.keyElements.all(e, true)))",
        ],
    )
    def test_nested_loops_that_multiply_are_refused(self, filter: str) -> None:
        expect_too_expensive(filter)

    def test_small_nested_loops_are_accepted(self) -> None:
        keep = filters.log_filter("operations.exists(o, o.keyElements.exists(e, e == 't9'))")
        assert keep(commit("many", *(put_table(f"ns.t{n}") for n in range(10))))
        assert not keep(commit("few", put_table("ns.t1")))

    def test_the_work_within_a_loop_counts(self) -> None:
        condition = " && ".join(["x > -1"] * 100)
        expect_too_expensive(f"{HUNDRED}.all(x, {condition}) && {HUNDRED}.all(x, {condition})")

    def test_a_large_commit_can_be_searched(self) -> None:
        large = commit("large", *(Delete(key(f"t{n}")) for n in range(9000)))
        assert filters.log_filter("operations.exists(o, o.name == 't8999')")(large)
        assert filters.log_filter("operations.all(o, o.type == 'DELETE')")(large)

    def test_a_commit_can_be_too_large_to_be_searched(self) -> None:
        larger = commit("larger", *(Delete(key(f"t{n}")) for n in range(10_001)))
        with pytest.raises(BadRequest, match="more than 10000 rounds for one item"):
            filters.log_filter("operations.exists(o, o.name == 'nope')")(larger)

    @pytest.mark.parametrize(
        "filter",
        [
            "operations.filter(o, o.type == 'PUT').size() == 0",
            "operations.map(o, o.name).size() > 0",
            "operations.exists(a, operations.exists(b, a.name == b.name))",
        ],
    )
    def test_cost_that_grows_with_the_square_is_bounded_by_the_item(self, filter: str) -> None:
        """The library copies the list that `map` and `filter` build, once for each element."""
        keep = filters.log_filter(filter)
        assert keep(commit("usual", *(Delete(key(f"t{n}")) for n in range(90))))
        with pytest.raises(BadRequest, match="Filter is too expensive"):
            keep(commit("large", *(Delete(key(f"t{n}")) for n in range(9000))))

    def test_an_item_that_is_too_large_is_refused_even_if_it_cannot_pass(self) -> None:
        keep = filters.log_filter("commit.message == 'x' && operations.map(o, o.name).size() > 0")
        assert not keep(commit("usual", Delete(key("t"))))
        with pytest.raises(BadRequest, match="Filter is too expensive"):
            keep(commit("large", *(Delete(key(f"t{n}")) for n in range(9000))))


class TestGrowth:
    @pytest.mark.parametrize("start", ["commit.message", f"'{'x' * 100}'"])
    def test_growth_by_factors_of_ten_is_refused(self, start: str) -> None:
        once, tens = f"[{start}]", f".map(x, {'+'.join('x' * 10)})"
        assert filters.log_filter(f"size({once}{tens}[0]) > 9")(commit("m"))
        with pytest.raises(BadRequest, match="builds a text or list of about"):
            filters.log_filter(f"size({once}{tens * 3}[0]) > 9")

    def test_growth_by_nested_maps_is_refused(self) -> None:
        within = "commit.authors.map(a, commit.authors.map(b, commit.authors.map(c, a + b + c)))"
        expect_too_expensive(f"{within}.size() > 1")

    def test_little_growth_is_accepted(self) -> None:
        keep = filters.log_filter("commit.authors.map(a, a + '@' + commit.message)[0] == 'joe@hi'")
        assert keep(commit("hi", authors=("joe",)))

    def test_growth_is_bounded_by_the_item(self) -> None:
        keep = filters.log_filter(
            "[commit.message].map(x, x + x + x + x + x).map(x, x + x + x + x)[0].size() > 1"
        )
        assert keep(commit("usual"))
        with pytest.raises(BadRequest, match="Filter is too expensive"):
            keep(commit("large" * 200_000))


class TestPatterns:
    def test_patterns_are_matched_in_linear_time(self) -> None:
        keep = filters.log_filter("commit.message.matches('^(a+)+$')")
        assert not keep(commit("a" * 100_000 + "!"))
        assert keep(commit("a" * 100_000))

    @pytest.mark.parametrize(
        "pattern",
        [
            "[^a]{1000}",
            "(([a-z]{10}){10}){10}",
            "(x{30}){30}|(y{30}){30}|(z{30}){30}",
            r"\\pL\\pL\\pL",
            ".*" * 300,
        ],
    )
    def test_patterns_that_are_large_when_expanded_are_refused(self, pattern: str) -> None:
        expect_too_expensive(f"commit.message.matches('{pattern}')")

    @pytest.mark.parametrize(
        "pattern",
        [
            "^v[0-9]+$",
            "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "(?i)^(fix|feat|chore)(\\\\(.*\\\\))?: .{1,50}$",
            r"\\pL+",
        ],
    )
    def test_common_patterns_are_accepted(self, pattern: str) -> None:
        assert not filters.log_filter(f"commit.message.matches('{pattern}')")(commit(""))

    def test_patterns_cost_more_on_large_texts(self) -> None:
        keep = filters.log_filter("commit.message.matches('(.?){30}b')")
        assert keep(commit("b"))
        with pytest.raises(BadRequest, match="Filter is too expensive"):
            keep(commit("a" * 10_000_000))

    @pytest.mark.parametrize(
        ("pattern", "weight"),
        [
            ("", 0),
            ("abc", 3),
            ("a{3}", 3),
            ("a{2,5}", 5),
            ("a{2}{3}", 6),
            ("(ab){3}", 6),
            ("((ab){3}c){2}", 14),
            ("[a-z]{4}", 8),
            (r"\{3}", 3),
            (r"\Qa{9}\E", 4),
            ("[]a{9}]", 2),
            ("[{9}]", 2),
            ("a{999999999999}", 999_999),
            (")a{2}", 3),
            ("(((", 0),
        ],
    )
    def test_the_weight_of_a_pattern_is_its_number_of_states(
        self, pattern: str, weight: int
    ) -> None:
        assert pattern_weight(pattern) == weight

"""Key patterns generate the names that they describe, the same ones for the same seed."""

from __future__ import annotations

import re
from itertools import islice
from random import Random
from uuid import UUID

import pytest

from morag.errors import BadRequest
from morag.model.key_patterns import KeyPattern


def generated(pattern: str, count: int, seed: int = 1) -> list[str]:
    return list(islice(KeyPattern.parse(pattern).texts(Random(seed)), count))


def test_text_without_functions_is_itself() -> None:
    assert generated("db.orders", 2) == ["db.orders", "db.orders"]


def test_two_dollars_are_one() -> None:
    assert generated("$$a$$${seq,1}$$", 2) == ["$a$1$", "$a$2$"]


def test_a_uuid_is_new_each_time() -> None:
    texts = generated("${uuid}", 100)
    assert len(set(texts)) == 100
    assert all(str(UUID(text)) == text for text in texts)


def test_an_int_is_below_its_bound_and_takes_every_value() -> None:
    assert set(generated("${int,5}", 200)) == set("01234")


def test_a_string_has_its_length_and_only_the_listed_characters() -> None:
    texts = generated("${string,40}", 200)
    assert all(re.fullmatch(r"[A-Za-z0-9 ._-]{40}", text) for text in texts)
    assert len(set("".join(texts))) == 26 + 26 + 10 + 4


@pytest.mark.parametrize(("start", "texts"), [("7", ["7", "8", "9"]), ("-1", ["-1", "0", "1"])])
def test_a_seq_counts_from_its_start(start: str, texts: list[str]) -> None:
    assert generated(f"${{seq,{start}}}", 3) == texts


def test_every_repeats_a_value_for_n_calls() -> None:
    assert generated("${every,3,seq,0}", 7) == ["0", "0", "0", "1", "1", "1", "2"]
    assert generated("${every,1,seq,0}", 3) == ["0", "1", "2"]


def test_prob_draws_a_new_value_with_its_probability() -> None:
    assert generated("${prob,1,seq,0}", 4) == ["0", "1", "2", "3"]
    assert generated("${prob,0,seq,0}", 4) == ["0", "0", "0", "0"]
    assert 150 < len(set(generated("${prob,0.2,seq,0}", 1000))) < 250


def test_functions_nest() -> None:
    assert generated("${every,2,every,2,seq,5}", 6) == ["5", "5", "5", "5", "6", "6"]
    texts = generated("${every,4,prob,0.5,uuid}", 400)
    assert 30 < len(set(texts)) < 70


def test_names_ignore_case_and_spaces() -> None:
    assert generated("${ Every , 2 , SEQ , 1 }", 3) == ["1", "1", "2"]


def test_the_same_seed_gives_the_same_texts_and_another_seed_others() -> None:
    pattern = "stuff-${every,150,uuid}.foolish-key_${every,20,uuid}.${uuid}_${int,9}${string,3}"
    assert generated(pattern, 300) == generated(pattern, 300)
    assert generated(pattern, 300) != generated(pattern, 300, seed=2)


def test_a_parsed_pattern_can_be_used_again_from_its_start() -> None:
    pattern = KeyPattern.parse("${seq,3}-${every,2,uuid}")
    first = list(islice(pattern.texts(Random(4)), 5))
    assert list(islice(pattern.texts(Random(4)), 5)) == first


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("", "empty"),
        ("a$b", "write $$"),
        ("a$", "write $$"),
        ("${uuid", "write $$"),
        ("${}", "a function is missing"),
        ("${guid}", "no function 'guid'"),
        ("${uuid,1}", "'1' is one argument too many"),
        ("${int}", "the bound is missing"),
        ("${int,}", "the bound is missing"),
        ("${int,0}", "whole number from 1"),
        ("${int,many}", "not 'many'"),
        ("${string,0}", "whole number from 1 to 1000"),
        ("${string,1001}", "whole number from 1 to 1000"),
        ("${seq}", "the start is missing"),
        ("${prob,2,uuid}", "from 0 to 1, not '2'"),
        ("${prob,x,uuid}", "from 0 to 1, not 'x'"),
        ("${prob,0.5}", "a function is missing"),
        ("${every,0,uuid}", "whole number from 1"),
        ("${every,2,nothing}", "no function 'nothing'"),
        ("${every,2,int,5,6}", "'6' is one argument too many"),
    ],
)
def test_a_wrong_pattern_is_refused_and_the_message_lists_the_functions(
    pattern: str, problem: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        KeyPattern.parse(pattern)
    assert problem in str(refused.value)
    assert "${every,N,FUNCTION...}" in str(refused.value)

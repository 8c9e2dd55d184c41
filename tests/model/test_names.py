"""Valid and invalid reference names, hashes and cut-off policies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morag.errors import BadRequest
from morag.model.names import (
    ReferenceKind,
    check_cutoff_policy,
    check_hash,
    check_new_reference_name,
    check_reference_name,
    full_name,
    split_full_name,
)

KINDS = st.sampled_from(("BRANCH", "TAG"))
EMPTY_HASH = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"


@pytest.mark.parametrize(
    "name", ["main", "a", "-", "a-", "a_", "A.b", "dir/sub/b", "a//b", "a./b", "v1.0.0", "nessie"]
)
def test_valid_names_are_accepted(name: str) -> None:
    check_reference_name(name)
    check_new_reference_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "1abc", "a..b", "abc.", "abc/", "a b", "a@b", "ab~1", ".a", "a*b", "--", "a\n", "ä", "/a"],
)
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(BadRequest, match="Reference name must start with a letter"):
        check_reference_name(name)
    with pytest.raises(BadRequest, match="Reference name must start with a letter"):
        check_new_reference_name(name)


@pytest.mark.parametrize(
    "name", ["HEAD", "head", "DETACHED", "Detached", "deadbeef", "DeadBeef", "deadbeef" * 8]
)
def test_names_of_old_repositories_are_accepted_for_existing_references(name: str) -> None:
    check_reference_name(name)
    with pytest.raises(BadRequest, match=f"- but was {name}$"):
        check_new_reference_name(name)


@pytest.mark.parametrize("name", ["deadbee", "deadbeef" * 8 + "d", "deadbeeg", "HEADS"])
def test_names_similar_to_forbidden_ones_are_accepted(name: str) -> None:
    check_new_reference_name(name)


@pytest.mark.parametrize(
    ("text", "hash"),
    [
        (EMPTY_HASH, EMPTY_HASH),
        (EMPTY_HASH.upper(), EMPTY_HASH),
        ("CafeBabe", "cafebabe"),
        ("123456789", "123456789"),
    ],
)
def test_a_hash_is_returned_in_lower_case(text: str, hash: str) -> None:
    assert check_hash(text) == hash


@pytest.mark.parametrize("text", ["", "zz", "abc", "1234567", "1" * 65, "cafebabe\n", "cafebabg"])
def test_invalid_hashes_are_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"^Hash must consist of the hex representation"):
        check_hash(text)


def test_full_names_have_a_prefix() -> None:
    assert full_name("BRANCH", "main") == "refs/heads/main"
    assert full_name("TAG", "v1") == "refs/tags/v1"


@given(KINDS, st.text())
def test_full_names_are_split_into_kind_and_name(kind: ReferenceKind, name: str) -> None:
    assert split_full_name(full_name(kind, name)) == (kind, name)


@pytest.mark.parametrize("full", ["int/refs", "int/repo", "nessie/configs", "main", "refs/other/a"])
def test_internal_references_are_neither_branch_nor_tag(full: str) -> None:
    assert split_full_name(full) is None


@pytest.mark.parametrize(
    "policy",
    [
        "NONE",
        "none",
        "1",
        "10000000000",
        "P30D",
        "p30d",
        "-P1D",
        "PT12H",
        "PT-5M",
        "P1DT2H3M4.5S",
        "PT1,5S",
        "2011-12-03T10:15:30Z",
        "2011-12-03T10:15:30.123456789+02:00",
        "2024-02-29T00:00:00Z",
    ],
)
def test_valid_cutoff_policies_are_accepted(policy: str) -> None:
    check_cutoff_policy(policy)


@pytest.mark.parametrize(
    "policy",
    [
        "",
        "0",
        "-5",
        "1\n",
        "100000000000",
        "abc",
        "NONE ",
        "P",
        "PT",
        "P1",
        "P1DT",
        "P1Y",
        "P1W",
        "2011-12-03",
        "2011-12-03T10:15:30",
        "2023-02-29T00:00:00Z",
    ],
)
def test_invalid_cutoff_policies_are_refused(policy: str) -> None:
    with pytest.raises(BadRequest, match=r"^Cut-off policy"):
        check_cutoff_policy(policy)

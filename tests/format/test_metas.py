"""Commit metadata is encoded to the headers of Nessie, and decoded from them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morag.errors import BadRequest
from morag.format.commit_headers import headers_of, meta_of
from morag.format.ids import NO_ANCESTOR, Headers
from morag.format.objects import Commit, CommitKind
from morag.format.records import ObjId
from morag.model.meta import CommitMeta
from morag.versions.commit_metas import completed
from tests.format import golden

NOW = "2026-11-15T21:02:34.673019952Z"
TEXTS = st.text(max_size=20)
FIELD_HEADERS = frozenset({"date", "author-date", "committer", "author", "signed-off-by"})
NAMES = TEXTS.filter(lambda name: name == name.lower() and name not in FIELD_HEADERS)


def commit_with(headers: Headers, message: str = "") -> Commit:
    return Commit(
        id=ObjId(bytes(32)),
        created_micros=1,
        seq=1,
        tail=(NO_ANCESTOR,),
        headers=headers,
        message=message,
        incremental=b"\x02\x00",
    )


def test_recorded_headers_are_encoded_in_the_same_order() -> None:
    compared = 0
    for id, commit in golden.of_kind(Commit).items():
        if commit.kind is CommitKind.INTERNAL or not commit.headers:
            continue
        meta = meta_of(commit)
        names = golden.api().request_properties.get(id.hex(), list(meta.properties))
        sent = {name: meta.properties[name] for name in names}
        assert headers_of(msgspec.structs.replace(meta, properties=sent)) == commit.headers
        compared += 1
    assert compared == 277


@given(
    st.builds(
        CommitMeta,
        message=TEXTS,
        authors=st.lists(TEXTS, max_size=3).map(tuple),
        signed_off_by=st.lists(TEXTS, max_size=3).map(tuple),
        properties=st.dictionaries(
            NAMES, st.lists(TEXTS, min_size=1, max_size=3).map(tuple), max_size=20
        ),
    ),
    TEXTS,
)
def test_metadata_is_read_as_it_was_stored(meta: CommitMeta, committer: str) -> None:
    whole = completed(meta, committer, NOW)
    read = meta_of(commit_with(headers_of(whole), whole.message))
    assert read == msgspec.structs.replace(whole, hash="00" * 32, parents=(NO_ANCESTOR.hex(),))


def test_the_server_sets_missing_fields() -> None:
    assert completed(CommitMeta(message="m"), "ann", NOW) == CommitMeta(
        message="m", authors=("ann",), author_time=NOW, committer="ann", commit_time=NOW
    )


def test_the_client_sets_authors_and_their_time() -> None:
    sent = CommitMeta(message="m", authors=("bob", "eve"), author_time="2024-02-29T12:00:00+02:00")
    assert completed(sent, "ann", NOW) == CommitMeta(
        message="m",
        authors=("bob", "eve"),
        author_time="2024-02-29T10:00:00Z",
        committer="ann",
        commit_time=NOW,
    )


def test_an_invalid_time_is_refused() -> None:
    with pytest.raises(BadRequest, match="yesterday"):
        completed(CommitMeta(message="m", author_time="yesterday"), "", NOW)


def test_property_names_lose_their_case_and_are_joined_in_order() -> None:
    properties = {"Team": ("a", "b"), "other": (), "TEAM": ("c",), "team": ("d",)}
    headers = headers_of(completed(CommitMeta(message="m", properties=properties), "", NOW))
    assert dict(headers) == {
        "team": ("a", "b", "c", "d"),
        "date": (NOW,),
        "author-date": (NOW,),
        "committer": ("",),
        "author": ("",),
    }


def test_a_property_named_like_a_field_comes_before_the_field() -> None:
    properties: dict[str, tuple[str, ...]] = {
        "Author": ("eve",),
        "Committer": ("eve",),
        "date": ("2001-01-01T00:00:00Z",),
        "signed-off-by": ("eve",),
    }
    meta = CommitMeta(message="m", authors=("bob",), properties=properties)
    headers = headers_of(completed(meta, "ann", NOW))
    assert dict(headers)["date"] == ("2001-01-01T00:00:00Z", NOW)
    read = meta_of(commit_with(headers))
    assert read.authors == ("eve", "bob")
    assert read.committer == "eve"
    assert read.signed_off_by == ("eve",)
    assert read.commit_time == "2001-01-01T00:00:00Z"
    assert read.author_time == NOW
    assert read.properties == {}


def test_times_of_other_tools_are_normalised_and_unreadable_ones_omitted() -> None:
    read = meta_of(
        commit_with((("date", ("Thu, 7 Apr 2005 22:13:13 +0200",)), ("author-date", ("soon",))))
    )
    assert (read.commit_time, read.author_time) == ("2005-04-07T20:13:13Z", None)


def test_a_commit_without_headers_has_metadata() -> None:
    assert meta_of(commit_with((), "Update config")) == CommitMeta(
        message="Update config", hash="00" * 32, parents=(NO_ANCESTOR.hex(),)
    )


def test_merge_parents_follow_the_parent() -> None:
    merged = ObjId(b"\x01" * 32)
    commit = msgspec.structs.replace(commit_with(()), merge_parents=(merged,))
    assert meta_of(commit).parents == (NO_ANCESTOR.hex(), merged.hex())

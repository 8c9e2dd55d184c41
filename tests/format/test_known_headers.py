"""Headers of commits, rebuilt from the metadata that servers show."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from morag.format.commit_headers import headers_of, known_headers_of, meta_of
from morag.format.ids import NO_ANCESTOR
from morag.format.objects import Commit
from morag.format.records import ObjId
from morag.model.meta import CommitMeta

TIME = "2024-02-29T12:34:56.789123Z"

# So few letters that many names share a bucket.
names = st.text("abAB", min_size=1, max_size=4)
values = st.lists(st.sampled_from(["", "x", "y"]), min_size=1, max_size=2).map(tuple)
metas = st.builds(
    CommitMeta,
    message=st.just("m"),
    authors=st.just(("A",)),
    author_time=st.just(TIME),
    signed_off_by=st.sampled_from([(), ("S",)]),
    properties=st.dictionaries(names, values, max_size=30),
    committer=st.just("C"),
    commit_time=st.just(TIME),
)


def shown(meta: CommitMeta) -> CommitMeta:
    """The metadata of a commit as Morag shows it."""
    headers = headers_of(meta)
    return meta_of(
        Commit(
            id=ObjId(bytes(32)),
            created_micros=0,
            seq=1,
            tail=(NO_ANCESTOR,),
            headers=headers,
            message=meta.message,
            incremental=b"",
        )
    )


@given(metas)
def test_what_morag_shows_has_the_headers_that_it_stored(meta: CommitMeta) -> None:
    assert known_headers_of(shown(meta), in_stored_order=True) == headers_of(meta)


@given(metas)
def test_what_nessie_shows_has_the_headers_of_a_new_commit(meta: CommitMeta) -> None:
    assert known_headers_of(meta, in_stored_order=False) == headers_of(meta)


def test_fields_that_are_not_shown_have_no_headers() -> None:
    meta = CommitMeta(message="m", properties={"a": ("1",), "b": ("2",)})
    assert dict(known_headers_of(meta, in_stored_order=True)) == {"a": ("1",), "b": ("2",)}
    meta = replace(meta, authors=("A",), commit_time=TIME)
    found = dict(known_headers_of(meta, in_stored_order=True))
    assert found.keys() - meta.properties.keys() == {"author", "date"}

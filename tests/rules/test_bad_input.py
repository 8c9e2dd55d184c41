"""Invalid input is refused with a message and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from morag import (
    UDF,
    CommitMeta,
    ContentKey,
    DeltaLakeTable,
    IcebergTable,
    IcebergView,
    MergeBehavior,
    MergeKey,
    Namespace,
    Put,
    TagNote,
)
from morag.errors import BadRequest, ReferenceConflict
from morag.model.refspecs import RefSpec
from tests.rules.operations import Store, create, delete, head, key, put, table, tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag import Repository
    from morag.model.content import Content

NAME = "Reference name must start with a letter, followed by letters, digits, one of the ./_-"
FORBIDDEN = "Reference name mut not be HEAD, DETACHED or a potential commit ID representation"
SURROGATE = "\ud800"


class WrongType:
    """A value of a wrong type. Its text is part of test names, so it contains no address."""

    def __repr__(self) -> str:
        return "WrongType()"


ANY: Any = WrongType()

# Names


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *(
            (name, NAME)
            for name in (
                *("", "1abc", "a..b", "abc.", "abc/", "a b", "a@b", "ab~1", ".a", "/a", "a*b"),
                *(
                    "a^b",
                    "a\nb",
                    "a\n",
                    "--",
                    "-a",
                    "_a",
                    "ä",
                    "aä",
                    "a\0",
                    "a:b",
                    "a\\b",
                    SURROGATE,
                ),
            )
        ),
        *(
            (name, FORBIDDEN)
            for name in ("HEAD", "head", "Head", "DETACHED", "detached", "deadbeef", "DeadBeef")
        ),
        ("deadbeef" * 8, FORBIDDEN),
        ("a" + "b" * 600, "must not be longer than 500 characters"),
    ],
)
def test_an_invalid_reference_name_is_refused(store: Store, name: str, message: str) -> None:
    before = store.everything()
    for make in (store.repo.references.create_branch, store.repo.references.create_tag):
        with pytest.raises(BadRequest) as raised:
            make(name, "main")
        assert message in str(raised.value)
    assert store.everything() == before


@pytest.mark.parametrize("name", ["", "a..b", "a@b", "ab~1", "a\n", SURROGATE])
def test_every_write_refuses_an_invalid_branch_name(store: Store, name: str) -> None:
    before = store.everything()
    writes: list[Callable[[], object]] = [
        lambda: store.repo.commit(name, [put("t", "t")], "t"),
        lambda: store.repo.merge("main", name),
        lambda: store.repo.transplant([head(store.repo)], name),
    ]
    for write in writes:
        with pytest.raises(BadRequest) as raised:
            write()
        assert NAME in str(raised.value)
    assert store.everything() == before


BAD_USES: list[tuple[str, Callable[[Repository], object], str]] = [
    ("assign", lambda repo: repo.references.assign(SURROGATE, "main"), NAME),
    ("assign to", lambda repo: repo.references.assign("main", SURROGATE), NAME),
    ("assign to none", lambda repo: repo.references.assign("main", ANY), "named by a text such as"),
    ("who", lambda repo: repo.references.assign("main", "main", who=ANY), "who must be a text"),
    ("spec", lambda repo: repo.contents.keys(RefSpec(SURROGATE)), NAME),
    ("hash", lambda repo: repo.contents.keys(RefSpec(hash="g" * 64)), "Hash must consist of"),
    (
        "prefix",
        lambda repo: repo.references.list("BRANCH", prefix=SURROGATE),
        "must be valid Unicode",
    ),
    (
        "start",
        lambda repo: repo.references.list("BRANCH", start=SURROGATE),
        "must be valid Unicode",
    ),
    ("end", lambda repo: repo.references.list("TAG", end=SURROGATE), "must be valid Unicode"),
    ("end of no kind", lambda repo: repo.references.list(end=SURROGATE), "must be valid Unicode"),
    ("no prefix", lambda repo: repo.references.list("TAG", prefix=ANY), "must be a text"),
    ("no kind", lambda repo: repo.references.list(ANY), "must be BRANCH or TAG, not"),
]


@pytest.mark.parametrize(
    ("use", "message"), [use[1:] for use in BAD_USES], ids=[use[0] for use in BAD_USES]
)
def test_reference_names_must_be_texts(
    store: Store, use: Callable[[Repository], object], message: str
) -> None:
    before = store.everything()
    with pytest.raises(BadRequest) as raised:
        use(store.repo)
    assert message in str(raised.value)
    assert store.everything() == before


@pytest.mark.parametrize("method", ["get", "delete", "metadata", "history", "note"])
@pytest.mark.parametrize("name", [SURROGATE, "", "a@b", None, 1])
def test_operations_on_references_refuse_an_invalid_name(
    store: Store, method: str, name: Any
) -> None:
    before = store.everything()
    with pytest.raises(BadRequest) as raised:
        getattr(store.repo.references, method)(name)
    assert NAME in str(raised.value)
    assert store.everything() == before


@pytest.mark.parametrize(
    ("note", "message"),
    [
        ("a text", "Tag note must be a TagNote, not 'a text'"),
        (TagNote(ANY), "Tag note must be a text"),
        (TagNote(SURROGATE), "Tag note must be valid Unicode"),
        (TagNote(signature=ANY), "Tag note: the signature must be bytes"),
        (TagNote(headers=ANY), "Tag note must be a dict"),
        (TagNote(headers={"k": ANY}), "Tag note: 'k' must have a tuple of texts"),
        (TagNote(headers={"k": ("v", ANY)}), "Tag note must be a text"),
        (TagNote(headers={ANY: ("v",)}), "Tag note must be a text"),
        (TagNote(headers={"k": (SURROGATE,)}), "Tag note must be valid Unicode"),
    ],
)
def test_an_invalid_tag_note_is_refused(store: Store, note: Any, message: str) -> None:
    before = store.everything()
    with pytest.raises(BadRequest) as raised:
        store.repo.references.create_tag("t", "main", note)
    assert message in str(raised.value)
    assert store.everything() == before


def test_a_page_of_moves_may_be_requested_with_any_length(any_repo: Repository) -> None:
    any_repo.references.create_branch("dev", "main")
    moves = any_repo.references.moves
    assert moves(limit=1 << 63) == moves()


@pytest.mark.parametrize("name", ["abcdefgh", "deadbee", "Header", "heads", "a" * 400])
def test_a_valid_name_that_looks_invalid_is_accepted(store: Store, name: str) -> None:
    assert store.repo.references.create_branch(name, "main").name == name


# Keys

TWENTY = [f"e{n}" for n in range(20)]

BAD_KEYS = [
    ((), "Content key must not be empty"),
    (("",), "must not contain an empty element"),
    (("a", "", "b"), "must not contain an empty element"),
    (("\x00",), "must not contain characters less than 0x20"),
    (("a\x01b",), "must not contain characters less than 0x20"),
    (("a\x1db",), "must not contain characters less than 0x20"),
    (("a\nb",), "must not contain characters less than 0x20"),
    (("a\x1f",), "must not contain characters less than 0x20"),
    (("a\x7fb",), "must not contain the character 0x7F"),
    (("x" * 501,), "Content key too long, max allowed length: 500"),
    (("x" * 250, "y" * 251), "Content key too long, max allowed length: 500"),
    (("\U0001f600" * 251,), "Content key too long, max allowed length: 500"),
    ((*TWENTY, "e20"), "Content key too long, max allowed number of elements: 20"),
    ((SURROGATE,), "must be valid Unicode"),
    ((1,), "must consist of texts"),
    (("a", None), "must consist of texts"),
    (["a"], "must be a ContentKey with a tuple of texts"),
    ("abc", "must be a ContentKey with a tuple of texts"),
    (None, "must be a ContentKey with a tuple of texts"),
]


@pytest.mark.parametrize(("elements", "message"), BAD_KEYS)
def test_an_invalid_key_is_refused(store: Store, elements: Any, message: str) -> None:
    repo, bad = store.repo, ContentKey(elements)
    create(repo, "main", t="t")
    before = store.everything()
    uses: list[Callable[[], object]] = [
        lambda: repo.commit("main", [Put(bad, table("t"))], "put"),
        lambda: repo.commit("main", [put("fine", "t"), Put(bad, table("t"))], "put"),
        lambda: repo.commit("main", [type(delete("x"))(bad)], "delete"),
        lambda: repo.contents.get("main", bad),
        lambda: repo.contents.get_all("main", [key("t"), bad]),
        lambda: repo.contents.entries("main", min_key=bad),
        lambda: repo.contents.entries("main", max_key=bad),
        lambda: repo.contents.entries("main", prefix=bad),
        lambda: repo.contents.entries("main", keys=[bad]),
        lambda: repo.contents.keys("main", prefix=bad),
        lambda: repo.contents.diff("main", "main", prefix=bad),
    ]
    for use in uses:
        with pytest.raises(BadRequest) as raised:
            use()
        assert message in str(raised.value)
        str(raised.value).encode()  # The message itself can be encoded.
    assert store.everything() == before


@pytest.mark.parametrize(
    "elements",
    [
        ("x" * 500,),
        ("\U0001f600" * 250,),
        ("ü" * 300,),
        ("☃" * 250,),
        ("\x80",),
        (".",),
        ("..",),
        (" ",),
        ("*",),
        ("a/b",),
        ("%41",),
        ("'\"\\",),
    ],
)
def test_keys_at_the_limits_are_accepted(store: Store, elements: tuple[str, ...]) -> None:
    wanted = ContentKey(elements)
    store.repo.commit("main", [Put(wanted, table("t"))], "put")
    assert list(store.repo.contents.keys("main")) == [wanted]
    assert list(store.reopened().contents.get_all("main", [wanted])) == [wanted]


def test_a_key_may_have_twenty_elements(store: Store) -> None:
    operations = [
        Put(ContentKey(tuple(TWENTY[:n])), Namespace(elements=tuple(TWENTY[:n])))
        for n in range(1, 21)
    ]
    store.repo.commit("main", operations, "deep")
    assert len(tables(store.repo)) == 20


def test_a_rule_for_an_impossible_key_is_unused(store: Store) -> None:
    create(store.repo, "main", t="t")
    store.repo.references.create_branch("dev", "main")
    create(store.repo, "dev", u="u")
    rule = MergeKey(ContentKey.of("\x00"), MergeBehavior.DROP)
    with pytest.raises(BadRequest, match="The following keys were not used"):
        store.repo.merge("dev", "main", keys=[rule])


LIST: Any = ["a"]


@pytest.mark.parametrize("bad", [ContentKey.of(ANY), ContentKey(LIST), "a", None, ANY])
def test_a_merge_rule_needs_a_key(bad: Any) -> None:
    with pytest.raises(BadRequest, match="Content key must"):
        MergeKey(bad, MergeBehavior.DROP)


@pytest.mark.parametrize("bad", ["a", None, ("a",), ANY])
def test_reads_refuse_values_that_are_not_keys(repo: Repository, bad: Any) -> None:
    with pytest.raises(BadRequest, match="Content key must be a ContentKey"):
        repo.contents.get("main", bad)


# Content

TEXT: Any = "abc"
HUGE = 1 << 63


def iceberg(**changes: object) -> Content:
    fields: dict[str, object] = {
        "metadata_location": "l",
        "snapshot_id": 1,
        "schema_id": 1,
        "spec_id": 1,
        "sort_order_id": 1,
        **changes,
    }
    return IcebergTable(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (Namespace(elements=(".",)), "Namespace '[.]' must not contain a '.' element"),
        (Namespace(elements=("",)), "must not contain an empty element"),
        (Namespace(elements=("a\x00",)), "must not contain characters less than 0x20"),
        (Namespace(elements=("x" * 501,)), "Namespace too long, max allowed length: 500"),
        (Namespace(elements=("x",) * 21), "Namespace too long, max allowed number of elements: 20"),
        (Namespace(elements=("a",), properties={SURROGATE: "v"}), "must be valid Unicode"),
        (Namespace(elements=("a",), properties={"k": SURROGATE}), "must be valid Unicode"),
        (iceberg(snapshot_id=HUGE), "snapshotId must be a whole number from"),
        (iceberg(snapshot_id=-HUGE - 1), "snapshotId must be a whole number from"),
        (iceberg(schema_id=1 << 31), "schemaId must be a whole number from -2147483648"),
        (iceberg(spec_id=1 << 31), "specId must be a whole number from"),
        (iceberg(sort_order_id=-(1 << 31) - 1), "sortOrderId must be a whole number from"),
        (Namespace(elements=TEXT), "NAMESPACE: elements must be a tuple of texts, not 'abc'"),
        (Namespace(elements=ANY), "NAMESPACE: elements must be a tuple of texts"),
        (Namespace(elements=(ANY,)), "Namespace must consist of texts"),
        (Namespace(elements=("a",), properties=ANY), "NAMESPACE: properties must be a dict"),
        (Namespace(elements=("a",), properties={"k": ANY}), "NAMESPACE: expected a text"),
        (iceberg(snapshot_id=True), "snapshotId must be a whole number from"),
        (iceberg(snapshot_id="1"), "snapshotId must be a whole number from"),
        (iceberg(snapshot_id=1.5), "snapshotId must be a whole number from"),
        (iceberg(metadata_location=None), "ICEBERG_TABLE: expected a text, got None"),
        (iceberg(metadata_location=7), "ICEBERG_TABLE: expected a text, got 7"),
        (iceberg(metadata_location=SURROGATE), "ICEBERG_TABLE must be valid Unicode"),
        (
            IcebergView(metadata_location="l", version_id=HUGE, schema_id=1),
            "ICEBERG_VIEW: versionId must be a whole number",
        ),
        (
            IcebergView(metadata_location="l", version_id=1, schema_id=1, sql_text=SURROGATE),
            "ICEBERG_VIEW must be valid Unicode",
        ),
        (
            DeltaLakeTable(metadata_location_history=("a", SURROGATE)),
            "DELTA_LAKE_TABLE must be valid Unicode",
        ),
        (
            DeltaLakeTable(metadata_location_history=TEXT),
            "DELTA_LAKE_TABLE: metadataLocationHistory must be a tuple of texts, not 'abc'",
        ),
        (
            DeltaLakeTable(checkpoint_location_history=ANY),
            "DELTA_LAKE_TABLE: checkpointLocationHistory must be a tuple of texts",
        ),
        (DeltaLakeTable(last_checkpoint=SURROGATE), "DELTA_LAKE_TABLE must be valid Unicode"),
        (UDF(sql_text=SURROGATE), "UDF must be valid Unicode"),
        (iceberg(id=SURROGATE), "ICEBERG_TABLE must be valid Unicode"),
        ("a text", "str is not a content type; known: DELTA_LAKE_TABLE"),
        (None, "is not a content type"),
    ],
    ids=str,
)
def test_invalid_content_is_refused(store: Store, content: Any, message: str) -> None:
    repo = store.repo
    id = create(repo, "main", t="t")["t"]
    before = store.everything()
    bad = Put(key("bad"), content)
    wrong: Any = content or "nothing"
    expecting = Put(key("t"), table("x", id), expected_content=wrong)
    for operations in ([bad], [put("fine", "f"), bad], [expecting]):
        with pytest.raises(BadRequest) as raised:
            repo.commit("main", operations, "bad")
        assert message in str(raised.value)
    assert store.everything() == before


# Metadata


@pytest.mark.parametrize(
    "meta",
    [
        CommitMeta(message=SURROGATE),
        CommitMeta(message="m", authors=(SURROGATE,)),
        CommitMeta(message="m", signed_off_by=("fine", SURROGATE)),
        CommitMeta(message="m", properties={SURROGATE: ("v",)}),
        CommitMeta(message="m", properties={"k": ("v", SURROGATE)}),
        CommitMeta(message="m", properties={"k": "v"}),  # type: ignore[dict-item]
        CommitMeta(message="m", properties={"k": (1,)}),  # type: ignore[dict-item]
        CommitMeta(message="m", properties={"k": LIST}),
        CommitMeta(message="m", properties={ANY: ("v",)}),
        CommitMeta(message="m", properties=ANY),
        CommitMeta(message=ANY),
        CommitMeta(message=None),  # type: ignore[arg-type]
        CommitMeta(message=b"m"),  # type: ignore[arg-type]
        CommitMeta(message="m", authors=(ANY,)),
        CommitMeta(message="m", authors=TEXT),
        CommitMeta(message="m", signed_off_by=LIST),
        CommitMeta(message="m", author_time=ANY),
        CommitMeta(message="m", author_time=SURROGATE),
        ANY,
        CommitMeta(message="m", author_time="nope"),
        CommitMeta(message="m", author_time=""),
        CommitMeta(message="m", author_time="2020-01-01"),
        CommitMeta(message="m", author_time="2020-01-01T00:00:00"),
        CommitMeta(message="m", author_time="2020-02-30T00:00:00Z"),
        CommitMeta(message="m", author_time="10000-01-01T00:00:00Z"),
    ],
    ids=str,
)
def test_invalid_metadata_is_refused(store: Store, meta: CommitMeta) -> None:
    repo = store.repo
    create(repo, "main", t="t")
    repo.references.create_branch("dev", "main")
    create(repo, "dev", u="u")
    before = store.everything()
    writes: list[Callable[[], object]] = [
        lambda: repo.commit("main", [put("v", "v")], meta),
        lambda: repo.merge("dev", "main", meta=meta),
        lambda: repo.transplant([head(repo, "dev")], "main", meta=meta),
    ]
    for write in writes:
        with pytest.raises(BadRequest) as raised:
            write()
        assert str(raised.value)
    assert store.everything() == before


# Hashes


@pytest.mark.parametrize(
    "hash", ["", "zz", "abc", "abcdef", "0x123456", "g" * 64, "a" * 65, SURROGATE]
)
def test_an_invalid_hash_is_refused(store: Store, hash: str) -> None:
    repo = store.repo
    repo.references.create_branch("dev", "main")
    before = store.everything()
    uses: list[Callable[[], object]] = [
        lambda: repo.commit("main", [put("t", "t")], "t", expected=hash),
        lambda: repo.merge("main", "main", expected=hash),
        lambda: repo.transplant([hash], "main"),
        lambda: repo.history.log("main", until=hash),
        lambda: repo.history.hashes("main", until=hash),
        lambda: repo.references.assign("main", "main", hash),
        lambda: repo.references.delete("dev", hash),
    ]
    for use in uses:
        with pytest.raises(BadRequest, match="Hash must consist of the hex representation of"):
            use()
    assert store.everything() == before


@pytest.mark.parametrize("operations", [put("a", "a"), None, 5, ["a"], [None], [("a", "b")]])
def test_operations_must_be_a_list_of_operations(store: Store, operations: Any) -> None:
    before = store.everything()
    with pytest.raises(BadRequest, match="Put, Delete"):
        store.repo.commit("main", operations, "x")
    assert store.everything() == before


def test_operations_may_come_from_a_generator(repo: Repository) -> None:
    repo.commit("main", (put(name, name) for name in "ab"), "both")  # type: ignore[arg-type]
    assert [str(key) for key in repo.contents.keys("main")] == ["a", "b"]


@pytest.mark.parametrize("behavior", ["DROP", None, 1])
def test_a_merge_behavior_must_be_a_member_of_the_enum(repo: Repository, behavior: Any) -> None:
    """The text DROP must not be treated as NORMAL, which would merge everything."""
    with pytest.raises(BadRequest, match=r"MergeBehavior\.DROP"):
        repo.merge("main", "main", default=behavior)


def test_a_shortened_hash_is_valid_but_does_not_match_the_head(store: Store) -> None:
    store.repo.references.create_branch("dev", "main")
    before, short = store.everything(), head(store.repo)[:12]
    with pytest.raises(ReferenceConflict, match="is not at expected hash"):
        store.repo.references.assign("dev", "main", short)
    with pytest.raises(ReferenceConflict, match="is not at expected hash"):
        store.repo.references.delete("dev", short)
    assert store.everything() == before


def test_the_first_mistake_is_reported_before_anything_is_attempted(store: Store) -> None:
    """Operations are checked together: a valid one before an invalid one is not applied."""
    before = store.everything()
    operations = [put("good", "g"), put("good", "again")]
    with pytest.raises(BadRequest, match="Duplicate key in commit operations: good"):
        store.repo.commit("main", operations, "both")
    assert store.everything() == before

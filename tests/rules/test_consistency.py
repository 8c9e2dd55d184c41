"""Consistency checks: every damage is found, and the damaged object is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from morag import CommitMeta, Settings
from morag.backend.base import ObjId, Ref, RefSwap
from morag.errors import RepositoryCorrupt
from morag.format import object_codec as codec
from morag.format.index_entries import INCREMENTAL_ADD, INCREMENTAL_REMOVE, REMOVE, value_of
from morag.format.objects import Commit
from morag.index.keys import store_key
from morag.index.layered import index_of
from morag.index.segment import Segment
from morag.logic.consistency import CommitStatus, Consistency
from morag.logic.refutation import is_cut_off
from morag.protobuf import read_varint
from tests.format.nessie_writer import cut_off, rewritten
from tests.format.unhashed_fields import UNCOVERED, uncovered
from tests.rules.operations import Store, create, delete, head, key, put, update

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from morag import Repository
    from morag.model.operations import Operation
    from morag.model.references import ReferenceHistory

CONSISTENT = Consistency.COMMIT_CONSISTENT
CONTENT_INCONSISTENT = Consistency.COMMIT_CONTENT_INCONSISTENT
INCONSISTENT = Consistency.COMMIT_INCONSISTENT

TINY = Settings(
    max_incremental_index_bytes=200,
    min_index_segment_bytes=100,
    max_index_segment_bytes=400,
    max_inlined_stripes=1,
)


def commit_of(store: Store, spec: str = "main") -> Commit:
    hash = store.repo.history.log(spec).page(1).items[0].meta.hash
    assert hash is not None
    return store.persist.fetch(Commit, ObjId(bytes.fromhex(hash)))


@pytest.fixture
def striped() -> Store:
    """A store with enough keys for a stripe list, and more keys in the incremental index."""
    store = Store(TINY)
    for number in range(40):
        store.repo.commit("main", [put(f"table-{number:02}", f"location {number}")], str(number))
    assert {row.kind for row in store.rows().values()} >= set("cviI")
    assert len(index_of(store.persist, commit_of(store)).directory) > 3
    assert store.repo.history.check("main").consistency is CONSISTENT
    return store


def part(store: Store, kind: str) -> ObjId:
    """The id of an object that the head of `main` needs."""
    commit = commit_of(store)
    index = index_of(store.persist, commit)
    match kind:
        case "COMMIT":
            return commit.id
        case "INDEX":
            return index.directory.stripes[len(index.directory) // 2].segment
        case "INDEX_SEGMENTS":
            assert commit.reference_index is not None
            return commit.reference_index
        case _:
            assert kind == "VALUE"
            op = index.get(store_key(key("table-07")))
            assert op is not None
            return value_of(op)


VERDICTS = pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("COMMIT", INCONSISTENT),
        ("INDEX", INCONSISTENT),
        ("INDEX_SEGMENTS", INCONSISTENT),
        ("VALUE", CONTENT_INCONSISTENT),
    ],
)


def check_verdict(store: Store, verdict: Consistency, id: ObjId) -> CommitStatus:
    """Every check of the head returns the verdict and names the object."""
    status = store.repo.history.check("main")
    reported = store.repo.references.history("main", 1)
    assert status.id.hex() == head(store.repo)
    assert status.consistency is verdict
    assert {finding.id for finding in status.findings} == {id}
    assert (reported.current.consistency, reported.log) == (verdict.value, verdict.value)
    return status


def check_previous(store: Store, reported: ReferenceHistory, id: ObjId, problem: str) -> None:
    """Only the previous head `id` is inconsistent, and its check names it with the problem."""
    assert reported.current.consistency == CONSISTENT.value
    assert reported.log == INCONSISTENT.value
    inconsistent = [s.hash for s in reported.previous if s.consistency != CONSISTENT.value]
    assert inconsistent == [id.hex()]
    findings = store.repo.history.check(f"@{id.hex()}").findings
    assert [(finding.id, finding.problem) for finding in findings] == [(id, problem)]


# Missing and damaged objects


@VERDICTS
def test_missing_objects_are_named(striped: Store, kind: str, verdict: Consistency) -> None:
    id = part(striped, kind)
    striped.backend.delete_rows("", [id])
    status = check_verdict(striped, verdict, id)
    assert [finding.problem for finding in status.findings] == ["the object is missing"]
    assert (status.commit is None) == (kind == "COMMIT")


@VERDICTS
def test_a_flipped_byte_is_found_wherever_it_is(
    striped: Store, kind: str, verdict: Consistency
) -> None:
    id = part(striped, kind)
    data = striped.rows()[id].data
    offsets = range(0, len(data), 7) if kind == "COMMIT" else range(len(data))
    unprotected = unprotected_bytes(data) if kind == "COMMIT" else set()
    for at in offsets:
        if at not in unprotected:
            striped.replace(id, flipped(data, at, 0x01))
            status = striped.repo.history.check("main")
            assert status.consistency is verdict, f"byte {at}"
            # Damage in a commit may change a pointer; the check then names the missing object.
            named = {finding.id for finding in status.findings}
            assert named == {id} or kind == "COMMIT", f"byte {at}"
    striped.replace(id, data)
    assert striped.repo.history.check("main").consistency is CONSISTENT


@VERDICTS
def test_an_object_of_another_kind_is_named(
    striped: Store, kind: str, verdict: Consistency
) -> None:
    id = part(striped, kind)
    row = striped.rows()[id]
    other = next(r for r in striped.rows().values() if r.kind == "r")
    swapped = msgspec.structs.replace(other, id=id)
    assert striped.backend.swap_row("", row, swapped)
    check_verdict(striped, verdict, id)


def test_a_segment_with_the_keys_of_another_is_named(striped: Store) -> None:
    """The segment is valid, but belongs elsewhere in the index."""
    commit = commit_of(striped)
    index = index_of(striped.persist, commit)
    one, other = (stripe.segment for stripe in index.directory.stripes[:2])
    striped.replace(one, striped.rows()[other].data)
    status = striped.repo.history.check("main")
    assert status.consistency is INCONSISTENT
    assert {finding.id for finding in status.findings} == {one}


def test_all_damaged_objects_are_named(striped: Store) -> None:
    index = index_of(striped.persist, commit_of(striped))
    segments = [stripe.segment for stripe in index.directory.stripes[:3]]
    striped.backend.delete_rows("", segments)
    status = striped.repo.history.check("main")
    assert {finding.id for finding in status.findings} == set(segments)


def test_all_damaged_values_are_named(striped: Store) -> None:
    index = index_of(striped.persist, commit_of(striped))
    values = [value_of(op) for _, op in index.items()][::5]
    striped.backend.delete_rows("", values)
    status = striped.repo.history.check("main")
    assert status.consistency is CONTENT_INCONSISTENT
    assert {finding.id for finding in status.findings} == set(values)


def test_a_cache_does_not_hide_damage(striped: Store) -> None:
    assert len(list(striped.repo.contents.entries("main", with_content=True))) == 40
    id = part(striped, "VALUE")
    striped.backend.delete_rows("", [id])
    check_verdict(striped, CONTENT_INCONSISTENT, id)


# History


def test_a_missing_parent_is_reported_for_the_parent_only(striped: Store) -> None:
    parent = commit_of(striped).parent
    striped.backend.delete_rows("", [parent])
    assert striped.repo.history.check("main").consistency is CONSISTENT
    reported = striped.repo.references.history("main", 1)
    check_previous(striped, reported, parent, "the object is missing")


def test_a_damaged_parent_is_reported_for_the_parent_only(striped: Store) -> None:
    parent = commit_of(striped).parent
    data = striped.rows()[parent].data
    at = data.index(b"2023-11-14")
    striped.replace(parent, flipped(data, at, 0x01))
    reported = striped.repo.references.history("main", 1)
    check_previous(striped, reported, parent, "the commit does not hash to its id")


def test_a_log_has_the_verdict_of_its_worst_commit(striped: Store) -> None:
    """The check finds the damage only if it reads far enough."""
    below = commit_of(striped, "main~3")
    striped.backend.delete_rows("", [below.id])
    verdicts = [striped.repo.references.history("main", scan).log for scan in (2, 3, 30)]
    assert verdicts == [CONSISTENT.value, INCONSISTENT.value, INCONSISTENT.value]


def test_a_lost_value_makes_every_commit_with_it_inconsistent(store: Store) -> None:
    create(store.repo, "main", t="t1")
    op = index_of(store.persist, commit_of(store)).get(store_key(key("t")))
    assert op is not None
    update(store.repo, "main", "t", "t2")
    update(store.repo, "main", "t", "t3")
    store.backend.delete_rows("", [value_of(op)])
    reported = store.repo.references.history("main", 5)
    assert reported.current.consistency == CONSISTENT.value
    assert [s.consistency for s in reported.previous] == [
        CONSISTENT.value,
        CONTENT_INCONSISTENT.value,
        CONSISTENT.value,
    ]
    assert reported.log == CONTENT_INCONSISTENT.value


def test_merge_parents_are_part_of_the_log(store: Store) -> None:
    create(store.repo, "main", a="a")
    store.repo.references.create_branch("dev", "main")
    create(store.repo, "dev", b="b")
    store.repo.merge("dev", "main")
    merged = commit_of(store, "dev").id
    store.backend.delete_rows("", [merged])
    reported = store.repo.references.history("main", 1)
    assert reported.current.consistency == CONSISTENT.value
    assert reported.log == INCONSISTENT.value


def test_the_first_commit_of_a_history_that_nessie_truncated_is_consistent(striped: Store) -> None:
    """The first commit has entries of commits that no longer exist, and continues their `seq`."""
    specs = ("main", "main~1", "main~2", "main~3")
    *above, cut, below = (commit_of(striped, spec) for spec in specs)
    for commit in above:
        striped.replace(commit.id, codec.encode(rewritten(commit, cut.id)).data)
    striped.replace(cut.id, codec.encode(cut_off(cut)).data)
    striped.backend.delete_rows("", [below.id])
    repo = striped.reopened()
    assert len(list(repo.history.log("main"))) == 3
    for spec in specs[:3]:
        assert repo.history.check(spec).consistency is CONSISTENT


def test_a_reference_to_a_missing_commit_is_still_listed(store: Store) -> None:
    create(store.repo, "main", a="a")
    ref = store.refs()["refs/heads/main"]
    lost = ObjId(b"\x07" * 32)
    moved = Ref(ref.name, lost, ref.deleted, ref.created_micros, ref.extended_info, ref.previous)
    assert store.backend.swap_ref("", RefSwap(ref.name, ref, moved))
    status = check_verdict(store, INCONSISTENT, lost)
    assert status.commit is None


# Incomplete commits


def make_incomplete(store: Store, commit: Commit) -> None:
    row = codec.encode(msgspec.structs.replace(commit, incomplete=True))
    store.replace(commit.id, row.data)


def test_reading_an_incomplete_commit_is_refused(striped: Store) -> None:
    commit = commit_of(striped)
    make_incomplete(striped, commit)
    repo = striped.reopened()
    hash = commit.id.hex()
    reads: list[Callable[[], object]] = [
        lambda: repo.contents.get("main", key("table-01")),
        lambda: list(repo.contents.entries("main")),
        lambda: list(repo.contents.keys(f"@{hash}")),
        lambda: list(repo.contents.diff("main", "main")),
        lambda: list(repo.history.log("main")),
        lambda: repo.references.metadata("main"),
        lambda: repo.references.create_branch("dev", f"@{hash}"),
        lambda: repo.commit("main", [put("new", "n")], "new"),
        lambda: repo.merge("main", "main"),
        lambda: repo.transplant([hash], "main"),
    ]
    for read in reads:
        with pytest.raises(RepositoryCorrupt) as raised:
            read()
        assert str(raised.value) == (
            f"Commit {hash} is incomplete: its import was cut short; import it again"
        )
    assert head(repo) == hash


def test_an_incomplete_commit_is_named_by_the_check(striped: Store) -> None:
    commit = commit_of(striped)
    make_incomplete(striped, commit)
    status = striped.repo.history.check("main")
    assert status.consistency is INCONSISTENT
    assert [(f.id, f.problem) for f in status.findings] == [
        (commit.id, "the commit is incomplete: its import was cut short")
    ]


def test_the_log_reports_an_incomplete_parent(striped: Store) -> None:
    make_incomplete(striped, commit_of(striped, "main~3"))
    repo = striped.reopened()
    with pytest.raises(RepositoryCorrupt, match="is incomplete"):
        list(repo.history.log("main"))
    assert len(list(repo.contents.keys("main"))) == 40, "the head itself is complete"


# Every byte of a commit


def root(repo: Repository) -> None:
    create(repo, "main", a="a")


def changes(repo: Repository) -> None:
    create(repo, "main", a="a", b="b", n="n")
    meta = CommitMeta(message="several", signed_off_by=("eve",), properties={"k": ("v", "w")})
    operations: list[Operation] = [put("c", "c"), delete("a"), delete("b"), put("b", "anew")]
    repo.commit("main", operations, meta)


def merge(repo: Repository) -> None:
    create(repo, "main", a="a")
    repo.references.create_branch("dev", "main")
    create(repo, "dev", b="b")
    create(repo, "main", c="c")
    repo.merge("dev", "main")


@pytest.fixture(params=[root, changes, merge])
def any_commit(request: pytest.FixtureRequest) -> Store:
    """A store with one kind of commit at the head of `main`."""
    store = Store()
    request.param(store.repo)
    return store


def test_a_flipped_byte_of_a_commit_is_found_unless_it_is_unprotected(any_commit: Store) -> None:
    """`unprotected_bytes` lists the exceptions with reasons."""
    store, commit = any_commit, commit_of(any_commit)
    data = store.rows()[commit.id].data
    unprotected = unprotected_bytes(data)
    unnoticed = set()
    for at in range(len(data)):
        for mask in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            store.replace(commit.id, flipped(data, at, mask))
            status = store.repo.history.check("main")
            if status.consistency is CONSISTENT:
                unnoticed.add(at)
            else:
                assert status.findings
    assert unnoticed <= unprotected
    store.replace(commit.id, data)
    assert store.repo.history.check("main").consistency is CONSISTENT


def test_a_damaged_commit_is_refused_unless_the_damage_is_not_covered_by_its_id(
    any_commit: Store,
) -> None:
    store, commit = any_commit, commit_of(any_commit)
    data = store.rows()[commit.id].data
    entries, log = all_entries(store.repo), whole_log(store.repo)
    refused = 0
    for at in range(len(data)):
        wrong = flipped(data, at, 0xFF)
        store.replace(commit.id, wrong)
        repo = store.reopened()
        if unprotected := uncovered(commit.id, data, wrong):
            for read in (all_entries, whole_log):
                read_or_reported(read, repo)
            assert unprotected <= {*UNCOVERED, "nothing"}
        else:
            refused += 1
            for read in (all_entries, whole_log):
                with pytest.raises(RepositoryCorrupt, match=commit.id.hex()):
                    read(repo)
            if at % 16 == 0:
                with pytest.raises(RepositoryCorrupt, match=commit.id.hex()):
                    repo.commit("main", [put("z", "z")], "z")
    assert refused > len(data) // 2
    store.replace(commit.id, data)
    assert (all_entries(store.reopened()), whole_log(store.reopened())) == (entries, log)


@pytest.mark.parametrize("kind", ["INDEX", "INDEX_SEGMENTS", "VALUE"])
def test_every_byte_of_a_damaged_part_is_reported_with_its_id(striped: Store, kind: str) -> None:
    id = part(striped, kind)
    data = striped.rows()[id].data
    for at in range(0, len(data), 3):
        striped.replace(id, flipped(data, at, 0xFF))
        with pytest.raises(RepositoryCorrupt, match=id.hex()):
            all_entries(striped.reopened())


def all_entries(repo: Repository) -> object:
    return list(repo.contents.entries("main", with_content=True))


def whole_log(repo: Repository) -> object:
    return list(repo.history.log("main", with_operations=True))


def read_or_reported(read: Callable[[Repository], object], repo: Repository) -> None:
    """A field that the id does not cover may be read as another value; errors name the object."""
    try:
        read(repo)
    except RepositoryCorrupt as error:
        assert "Object" in str(error)


def flipped(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def unprotected_bytes(data: bytes) -> set[int]:
    """The bytes of a commit's row that neither the id nor another object protects.

    - the creation time, and whether the commit is internal: not part of the id
    - merge parents: not part of the id; the log shows whether they exist
    - tags of tail entries: a shorter tail is valid too
    - tags of header names: the id hashes names and values without separators
    - the old value of a removed key: not part of the id, and never read
    - whether an inherited entry was added recently or long ago: it exists in both cases
    """
    unprotected: set[int] = set()
    ((_, start, _, end),) = _spans(data, 0, len(data))
    tails = 0
    for number, at, body, stop in _spans(data, start_of_body(data, start), end):
        match number:
            case 1 | 4 | 11:
                unprotected |= set(range(at, stop))
            case 3:
                tails += 1
                if tails > 1:
                    unprotected.add(at)
            case 5:
                unprotected.add(body)
            case 9:
                unprotected |= _unprotected_entries(data[body:stop], body)
    return unprotected


def start_of_body(data: bytes, at: int) -> int:
    _, at = read_varint(data, at)
    _, at = read_varint(data, at)
    return at


def _spans(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The number, start, start of the body, and end of each field."""
    while at < end:
        start = at
        tag, at = read_varint(data, at)
        if tag & 7 == 0:
            body = at
            _, at = read_varint(data, at)
        else:
            size, body = read_varint(data, at)
            at = body + size
        yield tag >> 3, start, body, at


def _unprotected_entries(index: bytes, offset: int) -> set[int]:
    unprotected: set[int] = set()
    for op in dict(Segment.decode(index).items()).values():
        at = offset + index.index(op)
        if op[:1] in (INCREMENTAL_ADD, INCREMENTAL_REMOVE):
            unprotected.add(at)
        if op[:1] in (REMOVE, INCREMENTAL_REMOVE):
            unprotected |= {at + 3 + n for n in range(len(value_of(op)))}
    return unprotected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("a [updated to remove parents on 2024]", True),
        (" [updated to remove parents on  [updated to remove parents on ]", True),
        ("a [updated to remove parents on ]", False),
        ("a [updated to remove parents on 2024] b]", False),
        ("a [updated to remove parents on 2024", False),
        ("[updated to remove parents on 2024]", False),
        (100_000 * " [updated to remove parents on ", False),
    ],
    ids=range(7),
)
def test_a_truncated_history_is_recognised_by_the_end_of_its_message(
    repo: Repository, message: str, expected: bool
) -> None:
    """The marker may occur earlier in the message: clients choose messages."""
    repo.commit("main", [put("a", "a")], message)
    first = repo.resolve("main").commit
    assert first is not None
    assert is_cut_off(first) is expected

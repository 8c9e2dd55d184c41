"""Damage is found, judged and named, and never passes for something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from morag import CommitMeta, Settings
from morag.backend.base import ObjId, Ref, RefSwap
from morag.errors import RepositoryCorrupt
from morag.index.keys import store_key
from morag.index.layered import index_of
from morag.index.ops import INCREMENTAL_ADD, INCREMENTAL_REMOVE, REMOVE, value_of
from morag.index.segment import Segment
from morag.logic.consistency import CommitStatus, Consistency
from morag.logic.refutation import is_cut_off
from morag.persist import codec
from morag.persist.objects import Commit
from morag.wire import read_varint
from tests.format.nessie_writer import cut_off, rewritten
from tests.format.uncovered import UNCOVERED, uncovered
from tests.rules.scenes import Store, create, delete, head, key, put, update

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from morag import Repository
    from morag.model.operations import Operation

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
    """Enough keys for stripes in a directory of their own, and some on top."""
    store = Store(TINY)
    for number in range(40):
        store.repo.commit("main", [put(f"table-{number:02}", f"location {number}")], str(number))
    assert {row.kind for row in store.rows().values()} >= set("cviI")
    assert len(index_of(store.persist, commit_of(store)).directory) > 3
    assert store.repo.history.check("main").consistency is CONSISTENT
    return store


def part(store: Store, kind: str) -> ObjId:
    """An object that the head of `main` needs."""
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


def judged(store: Store, verdict: Consistency, id: ObjId) -> CommitStatus:
    """Every way to look at the head gives the verdict and names the object."""
    status = store.repo.history.check("main")
    seen = store.repo.references.history("main", 1)
    assert status.id.hex() == head(store.repo)
    assert status.consistency is verdict
    assert {finding.id for finding in status.findings} == {id}
    assert (seen.current.consistency, seen.current.findings) == (verdict, status.findings)
    assert seen.log is verdict
    return status


# Missing and damaged objects


@VERDICTS
def test_what_is_missing_is_named(striped: Store, kind: str, verdict: Consistency) -> None:
    id = part(striped, kind)
    striped.backend.delete_rows("", [id])
    status = judged(striped, verdict, id)
    assert [finding.problem for finding in status.findings] == ["the object is missing"]
    assert (status.commit is None) == (kind == "COMMIT")


@VERDICTS
def test_a_flipped_byte_is_found_wherever_it_is(
    striped: Store, kind: str, verdict: Consistency
) -> None:
    id = part(striped, kind)
    data = striped.rows()[id].data
    spots = range(0, len(data), 7) if kind == "COMMIT" else range(len(data))
    spared = loose_ends(data) if kind == "COMMIT" else set()
    for at in spots:
        if at not in spared:
            striped.replace(id, flipped(data, at, 0x01))
            status = striped.repo.history.check("main")
            assert status.consistency is verdict, f"byte {at}"
            # Damage in a commit may turn a pointer into one to nothing, which is named then.
            named = {finding.id for finding in status.findings}
            assert named == {id} or kind == "COMMIT", f"byte {at}"
    striped.replace(id, data)
    assert striped.repo.history.check("main").consistency is CONSISTENT


@VERDICTS
def test_what_has_become_another_kind_is_named(
    striped: Store, kind: str, verdict: Consistency
) -> None:
    id = part(striped, kind)
    row = striped.rows()[id]
    stranger = next(r for r in striped.rows().values() if r.kind == "r")
    swapped = msgspec.structs.replace(stranger, id=id)
    assert striped.backend.swap_row("", row, swapped)
    judged(striped, verdict, id)


def test_a_segment_of_other_keys_is_named(striped: Store) -> None:
    """Sound in itself, but in the wrong place."""
    commit = commit_of(striped)
    index = index_of(striped.persist, commit)
    one, other = (stripe.segment for stripe in index.directory.stripes[:2])
    striped.replace(one, striped.rows()[other].data)
    status = striped.repo.history.check("main")
    assert status.consistency is INCONSISTENT
    assert {finding.id for finding in status.findings} == {one}


def test_all_that_is_wrong_is_named(striped: Store) -> None:
    index = index_of(striped.persist, commit_of(striped))
    segments = [stripe.segment for stripe in index.directory.stripes[:3]]
    striped.backend.delete_rows("", segments)
    status = striped.repo.history.check("main")
    assert {finding.id for finding in status.findings} == set(segments)


def test_all_values_that_are_wrong_are_named(striped: Store) -> None:
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
    judged(striped, CONTENT_INCONSISTENT, id)


# History


def test_a_missing_parent_is_the_parents_trouble(striped: Store) -> None:
    parent = commit_of(striped).parent
    striped.backend.delete_rows("", [parent])
    assert striped.repo.history.check("main").consistency is CONSISTENT
    seen = striped.repo.references.history("main", 1)
    assert (seen.current.consistency, seen.log) == (CONSISTENT, INCONSISTENT)
    assert [s.id for s in seen.previous if s.consistency is INCONSISTENT] == [parent]
    (worst,) = (s for s in seen.previous if s.findings)
    assert [(f.id, f.problem) for f in worst.findings] == [(parent, "the object is missing")]


def test_a_damaged_parent_is_the_parents_trouble(striped: Store) -> None:
    parent = commit_of(striped).parent
    data = striped.rows()[parent].data
    at = data.index(b"2023-11-14")
    striped.replace(parent, flipped(data, at, 0x01))
    seen = striped.repo.references.history("main", 1)
    assert (seen.current.consistency, seen.log) == (CONSISTENT, INCONSISTENT)
    (worst,) = (s for s in seen.previous if s.findings)
    assert [(f.id, f.problem) for f in worst.findings] == [
        (parent, "the commit does not hash to its id")
    ]


def test_a_log_is_as_good_as_its_worst_commit(striped: Store) -> None:
    """Looking far enough finds the damage, looking less far does not."""
    below = commit_of(striped, "main~3")
    striped.backend.delete_rows("", [below.id])
    assert striped.repo.references.history("main", 2).log is CONSISTENT
    assert striped.repo.references.history("main", 3).log is INCONSISTENT
    assert striped.repo.references.history("main", 30).log is INCONSISTENT


def test_a_lost_value_stains_every_commit_that_shows_it(store: Store) -> None:
    create(store.repo, "main", t="t1")
    op = index_of(store.persist, commit_of(store)).get(store_key(key("t")))
    assert op is not None
    update(store.repo, "main", "t", "t2")
    update(store.repo, "main", "t", "t3")
    store.backend.delete_rows("", [value_of(op)])
    seen = store.repo.references.history("main", 5)
    assert seen.current.consistency is CONSISTENT
    assert [s.consistency for s in seen.previous] == [CONSISTENT, CONTENT_INCONSISTENT, CONSISTENT]
    assert seen.log is CONTENT_INCONSISTENT


def test_merge_parents_are_part_of_the_log(store: Store) -> None:
    create(store.repo, "main", a="a")
    store.repo.references.create_branch("dev", "main")
    create(store.repo, "dev", b="b")
    store.repo.merge("dev", "main")
    merged = commit_of(store, "dev").id
    store.backend.delete_rows("", [merged])
    seen = store.repo.references.history("main", 1)
    assert (seen.current.consistency, seen.log) == (CONSISTENT, INCONSISTENT)


def test_the_commit_at_which_nessie_cut_a_history_off_is_consistent(striped: Store) -> None:
    """It has entries of commits that are gone, and goes on counting where they ended."""
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


def test_a_reference_that_points_nowhere_is_still_shown(store: Store) -> None:
    create(store.repo, "main", a="a")
    ref = store.refs()["refs/heads/main"]
    lost = ObjId(b"\x07" * 32)
    astray = Ref(ref.name, lost, ref.deleted, ref.created_micros, ref.extended_info, ref.previous)
    assert store.backend.swap_ref("", RefSwap(ref.name, ref, astray))
    status = judged(store, INCONSISTENT, lost)
    assert status.commit is None


# Incomplete commits


def make_incomplete(store: Store, commit: Commit) -> None:
    row = codec.encode(msgspec.structs.replace(commit, incomplete=True))
    store.replace(commit.id, row.data)


def test_an_incomplete_commit_is_not_read(striped: Store) -> None:
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


def test_an_incomplete_commit_below_is_met_by_the_log(striped: Store) -> None:
    make_incomplete(striped, commit_of(striped, "main~3"))
    repo = striped.reopened()
    with pytest.raises(RepositoryCorrupt, match="is incomplete"):
        list(repo.history.log("main"))
    assert len(list(repo.contents.keys("main"))) == 40, "the head itself is sound"


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


@pytest.mark.parametrize("make", [root, changes, merge])
def test_every_byte_of_a_commit_counts_but_for_a_few(
    make: Callable[[Repository], None],
) -> None:
    """Whatever is flipped is found, except for what `loose_ends` lists, with reasons."""
    store = Store()
    make(store.repo)
    commit = commit_of(store)
    data = store.rows()[commit.id].data
    spared = loose_ends(data)
    unnoticed = set()
    for at in range(len(data)):
        for mask in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            store.replace(commit.id, flipped(data, at, mask))
            status = store.repo.history.check("main")
            if status.consistency is CONSISTENT:
                unnoticed.add(at)
            else:
                assert status.findings
    assert unnoticed <= spared
    store.replace(commit.id, data)
    assert store.repo.history.check("main").consistency is CONSISTENT


@pytest.mark.parametrize("make", [root, changes, merge])
def test_a_damaged_commit_is_refused_unless_the_damage_is_not_covered_by_its_id(
    make: Callable[[Repository], None],
) -> None:
    store = Store()
    make(store.repo)
    commit = commit_of(store)
    data = store.rows()[commit.id].data
    entries, log = all_entries(store.repo), whole_log(store.repo)
    refused = 0
    for at in range(len(data)):
        wrong = flipped(data, at, 0xFF)
        store.replace(commit.id, wrong)
        repo = store.reopened()
        if loose := uncovered(commit.id, data, wrong):
            for read in (all_entries, whole_log):
                read_or_reported(read, repo)
            assert loose <= {*UNCOVERED, "nothing"}
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
    """What the id does not cover may read as something else, but fails only with a name."""
    try:
        read(repo)
    except RepositoryCorrupt as error:
        assert "Object" in str(error)


def flipped(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def loose_ends(data: bytes) -> set[int]:
    """The bytes of a commit's row that nothing else vouches for.

    - when it was created, and whether it is internal: no part of the id
    - merge parents: no part of the id; whether they exist shows in the log
    - that an entry of the tail is one: a shorter tail is another writer's choice
    - that a header's name is one: the id runs names and values together
    - the value that a removed key had: no part of the id, and nobody reads it
    - whether an inherited entry was added of late or long ago: it exists either way
    """
    loose: set[int] = set()
    ((_, start, _, end),) = _spans(data, 0, len(data))
    tails = 0
    for number, at, body, stop in _spans(data, start_of_body(data, start), end):
        match number:
            case 1 | 4 | 11:
                loose |= set(range(at, stop))
            case 3:
                tails += 1
                if tails > 1:
                    loose.add(at)
            case 5:
                loose.add(body)
            case 9:
                loose |= _loose_entries(data[body:stop], body)
    return loose


def start_of_body(data: bytes, at: int) -> int:
    _, at = read_varint(data, at)
    _, at = read_varint(data, at)
    return at


def _spans(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, start, start of the body, and end of each field."""
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


def _loose_entries(index: bytes, offset: int) -> set[int]:
    loose: set[int] = set()
    for op in dict(Segment.decode(index).items()).values():
        at = offset + index.index(op)
        if op[:1] in (INCREMENTAL_ADD, INCREMENTAL_REMOVE):
            loose.add(at)
        if op[:1] in (REMOVE, INCREMENTAL_REMOVE):
            loose |= {at + 3 + n for n in range(len(value_of(op)))}
    return loose


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
def test_a_cut_off_history_is_known_by_the_end_of_its_message(
    repo: Repository, message: str, expected: bool
) -> None:
    """However often the message looks like it: a client chooses messages."""
    repo.commit("main", [put("a", "a")], message)
    first = repo.resolve("main").commit
    assert first is not None
    assert is_cut_off(first) is expected

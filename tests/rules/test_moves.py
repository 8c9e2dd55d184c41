"""The previous heads in a reference's row, and the ref-log of all moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag import Settings
from morag.errors import BadRequest, ReferenceConflict
from morag.model.references import HeadStatus, Reference, RefLogEntry
from morag.versions.tickets import Waiter
from tests.rules.operations import NO_ANCESTOR, Store, create, head, messages, put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag import Repository
    from morag.versions.commit import CommitRequest

START = "2023-11-14T22:13:20Z"


def previous(repo: Repository, name: str = "main") -> list[str]:
    return [status.hash for status in repo.references.history(name).previous]


# Previous heads


def test_a_reference_keeps_its_previous_heads(repo: Repository) -> None:
    assert previous(repo) == []
    create(repo, "main", a="a")
    first = head(repo)
    create(repo, "main", b="b")
    assert previous(repo) == [first, NO_ANCESTOR]


def test_assignments_are_kept_too(repo: Repository) -> None:
    create(repo, "main", a="a")
    create(repo, "main", b="b")
    second = head(repo)
    repo.references.assign("main", "main~1")
    assert previous(repo)[0] == second
    before = previous(repo)
    repo.references.assign("main", "main")
    assert previous(repo) == before, "an assignment to the same head is not kept"


def test_a_new_reference_has_no_previous_heads(repo: Repository) -> None:
    create(repo, "main", a="a")
    repo.references.create_tag("v1", "main")
    repo.references.create_branch("dev", "main")
    assert previous(repo, "v1") == previous(repo, "dev") == []


def test_the_number_of_previous_heads_is_limited() -> None:
    repo = Store(Settings(previous_heads_count=3)).repo
    heads: list[str] = []
    for number in range(6):
        heads.insert(0, head(repo))
        repo.commit("main", [put(f"t{number}", "t")], str(number))
    assert previous(repo) == heads[:3]


def test_previous_heads_can_be_switched_off() -> None:
    repo = Store(Settings(previous_heads_count=0)).repo
    create(repo, "main", a="a")
    assert previous(repo) == []


def test_old_previous_heads_are_dropped() -> None:
    store = Store(Settings(previous_heads_seconds=300))
    repo = store.repo
    create(repo, "main", a="a")
    first = head(repo)
    store.clock.pass_seconds(200)
    create(repo, "main", b="b")
    second = head(repo)
    assert previous(repo) == [first, NO_ANCESTOR]
    store.clock.pass_seconds(101)
    create(repo, "main", c="c")
    assert previous(repo) == [second, first], "the oldest was replaced 301 seconds ago"
    store.clock.pass_seconds(10_000)
    third = head(repo)
    create(repo, "main", d="d")
    assert previous(repo) == [third]


def test_a_refused_commit_adds_no_previous_head(repo: Repository) -> None:
    create(repo, "main", a="a")
    before = previous(repo)
    with pytest.raises(ReferenceConflict):
        repo.commit("main", [put("a", "again")], "again", expected=NO_ANCESTOR)
    assert previous(repo) == before


def test_the_history_of_a_reference_has_verdicts(repo: Repository) -> None:
    create(repo, "main", a="a")
    reported = repo.references.history("main")
    assert reported.reference == Reference("BRANCH", "main", head(repo))
    assert reported.current.consistency == "COMMIT_CONSISTENT"
    assert reported.current.meta is not None
    assert reported.current.meta.message == "create a"
    assert reported.previous == (HeadStatus(NO_ANCESTOR, "COMMIT_CONSISTENT"),)
    assert reported.log == "NOT_CHECKED"


@pytest.mark.parametrize(
    ("scan", "verdict"),
    [
        (-1, "NOT_CHECKED"),
        (0, "NOT_CHECKED"),
        (1, "COMMIT_CONSISTENT"),
        (100, "COMMIT_CONSISTENT"),
    ],
)
def test_the_log_is_checked_as_far_as_requested(repo: Repository, scan: int, verdict: str) -> None:
    create(repo, "main", a="a")
    create(repo, "main", b="b")
    assert repo.references.history("main", scan).log == verdict


# The ref-log


def logged(repo: Repository) -> list[RefLogEntry]:
    """All moves but the creation of the default branch, newest first."""
    *moves, first = repo.references.moves(100).items
    assert (first.operation, first.reference.name) == ("CREATE_REFERENCE", "main")
    return moves


def test_every_operation_writes_a_line(any_repo: Repository) -> None:
    repo = any_repo
    one = repo.commit("main", [put("a", "a")], "a", committer="ann").hash
    repo.references.create_branch("dev", "main", who="bob")
    repo.references.create_tag("v1", "main", who="carl")
    two = repo.commit("dev", [put("b", "b")], "b", committer="dora").hash
    repo.merge("dev", "main", committer="eve")
    three = head(repo)
    four = repo.commit("dev", [put("c", "c")], "c").hash
    repo.transplant([four], "main", committer="fay")
    five = head(repo)
    repo.references.assign("v1", "main", who="gil")
    repo.references.delete("dev", who="hal")
    reported = [
        (m.operation, m.reference.type, m.reference.name, m.hash_before, m.hash_after, m.who)
        for m in reversed(logged(repo))
    ]
    assert reported == [
        ("COMMIT", "BRANCH", "main", NO_ANCESTOR, one, "ann"),
        ("CREATE_REFERENCE", "BRANCH", "dev", NO_ANCESTOR, one, "bob"),
        ("CREATE_REFERENCE", "TAG", "v1", NO_ANCESTOR, one, "carl"),
        ("COMMIT", "BRANCH", "dev", one, two, "dora"),
        ("MERGE", "BRANCH", "main", one, three, "eve"),
        ("COMMIT", "BRANCH", "dev", two, four, ""),
        ("TRANSPLANT", "BRANCH", "main", three, five, "fay"),
        ("ASSIGN_REFERENCE", "TAG", "v1", one, five, "gil"),
        ("DELETE_REFERENCE", "BRANCH", "dev", four, NO_ANCESTOR, "hal"),
    ]


def test_a_line_has_a_time(store: Store) -> None:
    store.clock.pass_seconds(1.000002)
    create(store.repo, "main", a="a")
    (line,) = logged(store.repo)
    assert line.time == "2023-11-14T22:13:21.000002Z"
    assert store.repo.references.moves(100).items[-1].time == START


def test_a_line_counts_its_commits(repo: Repository) -> None:
    create(repo, "main", base="base")
    repo.references.create_branch("dev", "main")
    hashes = [repo.commit("dev", [put(f"t{n}", "t")], str(n)).hash for n in range(3)]
    repo.references.create_branch("other", "main")
    repo.merge("dev", "main")
    repo.transplant(hashes, "other")
    transplant, merge, created, *commits, _, _ = logged(repo)
    assert (transplant.operation, transplant.commits) == ("TRANSPLANT", 3)
    assert (merge.operation, merge.commits) == ("MERGE", 1)
    assert (created.operation, created.commits) == ("CREATE_REFERENCE", 0)
    assert [line.commits for line in commits] == [1, 1, 1]


def test_a_failed_change_writes_no_line(repo: Repository) -> None:
    create(repo, "main", a="a")
    repo.references.create_branch("dev", "main")
    create(repo, "dev", b="b")
    before = logged(repo)
    repo.merge("dev", "main", dry_run=True)
    repo.merge("main", "dev")
    with pytest.raises(ReferenceConflict):
        repo.commit("main", [put("a", "again")], "again", expected=NO_ANCESTOR)
    with pytest.raises(ReferenceConflict):
        repo.references.delete("dev", NO_ANCESTOR)
    with pytest.raises(ReferenceConflict):
        repo.references.assign("dev", "main", NO_ANCESTOR)
    assert logged(repo) == before


def test_lines_are_paged_newest_first(any_repo: Repository) -> None:
    for number in range(10):
        any_repo.commit("main", [put(f"t{number}", "t")], str(number))
    everything = any_repo.references.moves(100)
    assert everything.token is None
    assert len(everything.items) == 11
    pages: list[RefLogEntry] = []
    token = None
    while True:
        page = any_repo.references.moves(4, token)
        pages += page.items
        token = page.token
        if token is None:
            break
    assert tuple(pages) == everything.items
    hashes = [line.hash_after for line in pages]
    assert hashes[:-1] == list(any_repo.history.hashes("main"))


@pytest.mark.parametrize("token", ["zz", "abc", "not a token"])
def test_an_invalid_token_is_refused(repo: Repository, token: str) -> None:
    with pytest.raises(BadRequest, match="Invalid token string representation"):
        repo.references.moves(10, token)


def test_a_page_limit_must_be_positive(repo: Repository) -> None:
    for limit in (0, -1):
        with pytest.raises(BadRequest, match="at least one item"):
            repo.references.moves(limit)


def commit_together(store: Store, requests: Sequence[CommitRequest]) -> list[Waiter]:
    """Queue commits in the lane of `main`, so that they become one batch."""
    store.clock.pass_seconds(1)
    tickets = [Waiter(request) for request in requests]
    lane = store.repo._writers().lanes.lane("main")
    assert lane.join(tickets)
    lane.drive(tickets[0])
    return tickets


def test_commits_of_one_batch_are_one_move(store: Store) -> None:
    repo = store.repo
    commit_together(
        store,
        [
            repo.commit_request("main", [put("a", "a")], "1", committer="ann"),
            repo.commit_request("main", [put("b", "b")], "2", committer="bob"),
            repo.commit_request("main", [put("c", "c")], "3", committer="ann"),
        ],
    )
    assert messages(repo) == ["3", "2", "1"]
    (line,) = logged(repo)
    assert line == RefLogEntry(
        Reference("BRANCH", "main", head(repo)),
        "COMMIT",
        NO_ANCESTOR,
        head(repo),
        "ann, bob",
        "2023-11-14T22:13:21Z",
        3,
    )
    assert previous(repo) == [NO_ANCESTOR], "intermediate commits of a batch were never heads"


def test_a_conflict_in_a_batch_fails_one_request(store: Store) -> None:
    repo = store.repo
    one, two, three = commit_together(
        store,
        [
            repo.commit_request("main", [put("a", "t")], "1"),
            repo.commit_request("main", [put("a", "t")], "2", expected=NO_ANCESTOR),
            repo.commit_request("main", [put("b", "t")], "3"),
        ],
    )
    assert one.result().hash != three.result().hash == head(repo)
    with pytest.raises(ReferenceConflict, match="Key 'a' already exists"):
        two.result()
    assert messages(repo) == ["3", "1"]
    assert logged(repo)[0].commits == 2

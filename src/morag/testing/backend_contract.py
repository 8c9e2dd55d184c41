"""Tests that every backend must pass.

The test of a backend is a class that inherits the contracts for its abilities, and has a fixture
`backend` that gives an empty store.

    class TestMine(DurableBackendContract, AppliesWithLogContract): ...
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from threading import Barrier, Event
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec.structs import replace

from morag.backend.base import (
    UNIQUE_KIND,
    Applied,
    AppliesAtOnce,
    Backend,
    KeepsRefLog,
    LogRow,
    ObjId,
    PreviousPointer,
    QuickSwapsTogether,
    Ref,
    RefSwap,
    Row,
    Slice,
    SwapsTogether,
    SyncsLater,
)
from morag.protobuf import bytes_field, int_field, text_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")
A = TypeVar("A")

THREADS = 8
FIELDS = {"c": 2, "r": 3, "v": 4, "I": 5, "i": 6, "s": 7, "t": 8, UNIQUE_KIND: 10}


def an_id(seed: object) -> ObjId:
    return ObjId(sha256(repr(seed).encode()).digest())


def a_row(seed: object, kind: str = "v", size_bytes: int = 40, micros: int = 1000) -> Row:
    """A row whose data has the right outer field for its kind. Engines do not read more of it."""
    inside = bytes_field(1, (repr(seed).encode() * size_bytes)[:size_bytes])
    return Row(an_id(seed), kind, bytes_field(FIELDS[kind], inside), None, micros)


def a_custom_row(id: bytes, version: str | None, text: bytes = b"text", micros: int = 1000) -> Row:
    inside = text_field(1, "c-s") + bytes_field(2, text) + int_field(3, 1)
    return Row(ObjId(id), "c-s", bytes_field(9, inside), version, micros)


MAIN = Ref("refs/heads/main", an_id("main"), created_micros=1_794_776_952_929_222)
MOVED = replace(MAIN, pointer=an_id("moved"))
PREVIOUS = tuple(PreviousPointer(an_id(n), 1_794_776_952_929_222 - n) for n in range(20))

NEAR_REPOS = ("", "a", "ab", "a:", "a:b", ":", "b", "a%3Ab", "é")
"""Ids of repositories that a careless layout of keys would confuse."""


class BackendContract:
    """For every backend. Subclass it and add a fixture `backend`."""

    def test_a_ref_is_created_only_once(self, backend: Backend) -> None:
        assert create(backend, MAIN)
        assert not create(backend, MOVED)
        assert not create(backend, MAIN)
        assert read(backend, MAIN.name) == MAIN

    def test_a_ref_moves_only_from_its_current_state(self, backend: Backend) -> None:
        assert not move(backend, MAIN, MOVED)
        create(backend, MAIN)
        assert move(backend, MAIN, MOVED)
        assert not move(backend, MAIN, MOVED)
        assert read(backend, MAIN.name) == MOVED

    def test_a_ref_can_be_swapped_for_itself(self, backend: Backend) -> None:
        """A database that counts only changed rows would report a failure."""
        assert not move(backend, MAIN, MAIN)
        create(backend, MAIN)
        assert move(backend, MAIN, MAIN)
        assert not move(backend, MOVED, MOVED)
        assert read(backend, MAIN.name) == MAIN

    def test_a_ref_is_deleted_only_in_its_current_state(self, backend: Backend) -> None:
        create(backend, MOVED)
        assert not move(backend, MAIN, None)
        assert move(backend, MOVED, None)
        assert not move(backend, MOVED, None)
        assert backend.read_refs("r", [MAIN.name]) == {}
        assert create(backend, MAIN)

    def test_a_swap_from_none_to_none_succeeds_if_the_ref_is_absent(self, backend: Backend) -> None:
        assert backend.swap_ref("r", RefSwap(MAIN.name, None, None))
        create(backend, MAIN)
        assert not backend.swap_ref("r", RefSwap(MAIN.name, None, None))

    def test_a_swap_does_not_compare_previous_pointers(self, backend: Backend) -> None:
        create(backend, replace(MAIN, previous=PREVIOUS))
        moved = replace(MOVED, previous=PREVIOUS[3:])
        assert move(backend, MAIN, moved)
        assert read(backend, MAIN.name) == moved
        assert move(backend, replace(MOVED, previous=PREVIOUS[:1]), None)

    def test_a_swap_compares_everything_else(self, backend: Backend) -> None:
        create(backend, MAIN)
        for other in (
            replace(MAIN, pointer=an_id("other")),
            replace(MAIN, deleted=True),
            replace(MAIN, created_micros=MAIN.created_micros + 1),
            replace(MAIN, created_micros=0),
            replace(MAIN, extended_info=an_id("info")),
        ):
            assert not move(backend, other, MOVED), other
            assert not move(backend, other, None), other
        assert read(backend, MAIN.name) == MAIN
        informed = replace(MAIN, name="informed", extended_info=an_id("info"))
        create(backend, informed)
        assert not move(backend, replace(informed, extended_info=None), None)
        assert not move(backend, replace(informed, extended_info=an_id("other")), None)
        assert read(backend, "informed") == informed

    def test_every_field_of_a_ref_is_stored(self, backend: Backend) -> None:
        for number, ref in enumerate(
            (
                MAIN,
                replace(MAIN, deleted=True),
                replace(MAIN, created_micros=0),
                replace(MAIN, extended_info=an_id("info")),
                replace(MAIN, previous=PREVIOUS),
                replace(MAIN, previous=(PreviousPointer(an_id("old"), 0),)),
                Ref("n", an_id("n"), True, 0, an_id("info"), PREVIOUS[:1]),
            )
        ):
            named = replace(ref, name=f"refs/heads/{number}")
            assert create(backend, named)
            assert read(backend, named.name) == named

    def test_a_ref_that_has_neither_time_nor_info_is_swapped_like_any_other(
        self, backend: Backend
    ) -> None:
        plain = Ref("plain", an_id(1))
        full = Ref("plain", an_id(1), True, 5, an_id("info"))
        create(backend, plain)
        assert not move(backend, full, None)
        assert move(backend, plain, full)
        assert not move(backend, plain, None)
        assert move(backend, full, plain)
        assert read(backend, "plain") == plain
        assert move(backend, plain, None)

    def test_names_keep_case_and_non_ascii_characters(self, backend: Backend) -> None:
        names = [
            "refs/heads/Main",
            "refs/heads/main",
            "refs/heads/größe/日本語/😀",
            "a:b",
            "a b",
            "é",
        ]
        for name in names:
            assert create(backend, Ref(name, an_id(name)))
        found = backend.read_refs("r", [*names, "refs/heads/MAIN", "e"])
        assert found == {name: Ref(name, an_id(name)) for name in names}

    def test_many_refs_are_read_in_one_call(self, backend: Backend) -> None:
        refs = {f"refs/heads/{n}": Ref(f"refs/heads/{n}", an_id(n)) for n in range(60)}
        for ref in refs.values():
            create(backend, ref)
        assert backend.read_refs("r", [f"refs/heads/{n}" for n in range(5000)]) == refs
        assert backend.read_refs("r", []) == {}

    def test_one_of_many_racing_swaps_wins(self, backend: Backend) -> None:
        create(backend, MAIN)
        rivals = [replace(MAIN, pointer=an_id(n)) for n in range(THREADS)]
        won = at_once(lambda new: move(backend, MAIN, new), rivals)
        assert won.count(True) == 1
        assert read(backend, MAIN.name) == rivals[won.index(True)]

    def test_one_of_many_racing_creations_wins(self, backend: Backend) -> None:
        rivals = [replace(MAIN, pointer=an_id(n)) for n in range(THREADS)]
        won = at_once(lambda new: create(backend, new), rivals)
        assert won.count(True) == 1
        assert read(backend, MAIN.name) == rivals[won.index(True)]

    def test_concurrent_increments_of_one_ref_lose_no_update(self, backend: Backend) -> None:
        create(backend, Ref("count", an_id(0), created_micros=1))
        at_once(lambda _: count(backend, 5), range(THREADS))
        assert read(backend, "count").created_micros == 1 + 5 * THREADS

    def test_concurrent_swaps_and_inserts_all_succeed(self, backend: Backend) -> None:
        create(backend, Ref("count", an_id(0), created_micros=1))

        def work(thread: int) -> None:
            if thread % 2:
                count(backend, 10)
            else:
                for n in range(20):
                    assert backend.insert_rows("r", [a_row((thread, n))])

        at_once(work, range(THREADS))
        assert read(backend, "count").created_micros == 1 + 10 * THREADS // 2
        assert len(list(backend.scan_rows("r"))) == 20 * THREADS // 2

    def test_inserting_reports_the_new_rows(self, backend: Backend) -> None:
        first, second = a_row(1), a_row(2, "c")
        assert backend.insert_rows("r", [first]) == {first.id}
        assert backend.insert_rows("r", [first, second]) == {second.id}
        assert backend.insert_rows("r", [first, second]) == frozenset()
        assert backend.insert_rows("r", []) == frozenset()
        found = backend.read_rows("r", [first.id, second.id, an_id("?")])
        assert found == {first.id: first, second.id: second}

    def test_inserting_again_refreshes_the_time_and_nothing_else(self, backend: Backend) -> None:
        old, custom = a_row(1, micros=1000), a_custom_row(b"custom", "v1", micros=1000)
        backend.insert_rows("r", [old, custom])
        other = replace(a_row(2, "s", micros=3000), id=old.id)
        backend.insert_rows("r", [other, a_custom_row(b"custom", "v2", b"other", micros=2000)])
        assert backend.read_rows("r", [old.id, custom.id]) == {
            old.id: replace(old, referenced_micros=3000),
            custom.id: replace(custom, referenced_micros=2000),
        }

    def test_every_kind_of_row_is_stored(self, backend: Backend) -> None:
        rows = [a_row(kind, kind) for kind in FIELDS]
        rows += [a_row("no time", micros=0), a_row("late", micros=2**62)]
        rows += [a_row("short", size_bytes=1), a_row("long", size_bytes=200)]
        rows += [a_custom_row(b"none", None), a_custom_row(b"some", "v-1"), a_custom_row(b"e", "")]
        assert backend.insert_rows("r", rows) == {row.id for row in rows}
        assert backend.read_rows("r", [row.id for row in rows]) == {row.id: row for row in rows}

    def test_ids_may_have_any_length(self, backend: Backend) -> None:
        ids = [b"signer-keys-singleton", b"\0", b"\xff", b"\xff" * 5, b"i" * 31, b"i" * 33, b"=;'%"]
        rows = {ObjId(id): a_custom_row(id, "1") for id in ids}
        assert backend.insert_rows("r", list(rows.values())) == rows.keys()
        assert backend.read_rows("r", list(rows)) == rows
        assert by_id(backend.scan_rows("r")) == rows
        backend.delete_rows("r", list(rows))
        assert backend.read_rows("r", list(rows)) == {}

    def test_a_hash_may_hold_any_bytes(self, backend: Backend) -> None:
        ids = [b":" * 32, b"b:" + b"x" * 30, b"\0" * 32, b"\xff" * 32, b"%" * 32, b"\n" * 32]
        rows = {ObjId(id): replace(a_row(id), id=ObjId(id)) for id in ids}
        backend.insert_rows("a", list(rows.values()))
        assert backend.read_rows("a", list(rows)) == rows
        assert by_id(backend.scan_rows("a")) == rows

    def test_exactly_one_of_many_racing_inserts_reports_a_row_as_new(
        self, backend: Backend
    ) -> None:
        rows = [a_row(n, UNIQUE_KIND) for n in range(20)]
        new = at_once(lambda some: backend.insert_rows("r", some), [rows] * THREADS)
        assert sorted(id for ids in new for id in ids) == sorted(row.id for row in rows)

    def test_a_row_is_swapped_by_its_version(self, backend: Backend) -> None:
        first, second = a_custom_row(b"c", "1"), a_custom_row(b"c", "2", b"other", micros=2000)
        assert not backend.swap_row("r", first, second)
        backend.insert_rows("r", [first])
        assert not backend.swap_row("r", replace(first, version="0"), second)
        assert not backend.swap_row("r", replace(first, version=None), second)
        assert not backend.swap_row("r", replace(first, kind="other"), second)
        assert backend.read_rows("r", [first.id]) == {first.id: first}
        assert backend.swap_row("r", replace(first, data=b"", referenced_micros=0), second)
        assert backend.read_rows("r", [first.id]) == {first.id: second}

    def test_a_row_is_deleted_by_its_version(self, backend: Backend) -> None:
        first = a_custom_row(b"c", "1")
        backend.insert_rows("r", [first])
        assert not backend.swap_row("r", replace(first, version="0"), None)
        assert backend.swap_row("r", first, None)
        assert not backend.swap_row("r", first, None)
        assert backend.read_rows("r", [first.id]) == {}

    def test_a_missing_version_is_compared_like_any_other(self, backend: Backend) -> None:
        plain, versioned = a_custom_row(b"c", None), a_custom_row(b"c", "1")
        backend.insert_rows("r", [plain])
        assert not backend.swap_row("r", versioned, None)
        assert backend.swap_row("r", plain, versioned)
        assert backend.read_rows("r", [plain.id]) == {plain.id: versioned}

    def test_one_of_many_racing_row_swaps_wins(self, backend: Backend) -> None:
        first = a_custom_row(b"c", "first")
        backend.insert_rows("r", [first])
        rivals = [a_custom_row(b"c", f"rival {n}") for n in range(THREADS)]
        won = at_once(lambda new: backend.swap_row("r", first, new), rivals)
        assert won.count(True) == 1
        assert backend.read_rows("r", [first.id]) == {first.id: rivals[won.index(True)]}

    def test_only_the_given_rows_are_deleted(self, backend: Backend) -> None:
        rows = [a_row(n) for n in range(5)]
        backend.insert_rows("r", rows)
        backend.delete_rows("r", iter([rows[0].id, an_id("?"), rows[3].id]))
        backend.delete_rows("r", [])
        assert by_id(backend.scan_rows("r")) == by_id([rows[1], rows[2], rows[4]])
        assert backend.insert_rows("r", rows[:2]) == {rows[0].id}

    def test_rows_that_were_not_referenced_again_are_deleted(self, backend: Backend) -> None:
        rows = [a_row(n, kind, micros=1000 + n) for n, kind in enumerate(FIELDS)]
        rows += [a_custom_row(b"none", None), a_custom_row(b"some", "v-1"), a_row("0", micros=0)]
        backend.insert_rows("r", [*rows, a_row("other")])
        assert backend.delete_unreferenced("r", rows) == by_id(rows).keys()
        assert backend.delete_unreferenced("r", rows) == frozenset()
        assert backend.delete_unreferenced("r", []) == frozenset()
        assert list(backend.scan_rows("r")) == [a_row("other")]

    def test_a_row_that_differs_from_the_given_one_is_not_deleted(self, backend: Backend) -> None:
        plain, custom, old = a_row(1), a_custom_row(b"c", "1"), a_row(2, micros=0)
        backend.insert_rows("r", [plain, custom, old])
        for other in (
            replace(plain, referenced_micros=999),
            replace(plain, referenced_micros=1001),
            replace(plain, referenced_micros=0),
            replace(plain, kind="c"),
            replace(plain, version="1"),
            replace(custom, version="2"),
            replace(custom, version=None),
            replace(custom, referenced_micros=2000),
            replace(old, referenced_micros=1),
            a_row("never there"),
        ):
            assert backend.delete_unreferenced("r", [other]) == frozenset(), other
        assert backend.delete_unreferenced("other", [plain]) == frozenset()
        assert by_id(backend.scan_rows("r")) == by_id([plain, custom, old])
        wrong = replace(plain, referenced_micros=999)
        assert backend.delete_unreferenced("r", [wrong, custom]) == {custom.id}
        assert backend.delete_unreferenced("r", [replace(plain, data=b"")]) == {plain.id}

    def test_a_refreshed_row_is_not_deleted(self, backend: Backend) -> None:
        rows = [a_row(n, micros=1000) for n in range(40)]
        backend.insert_rows("r", rows)
        again = [replace(row, referenced_micros=2000) for row in rows[::2]]
        assert backend.insert_rows("r", again) == frozenset()
        assert backend.delete_unreferenced("r", rows) == {row.id for row in rows[1::2]}
        assert by_id(backend.scan_rows("r")) == by_id(again)
        assert backend.insert_rows("r", rows[:2]) == {rows[1].id}

    def test_a_row_is_stored_after_racing_inserts_and_deletes(self, backend: Backend) -> None:
        """However the two meet, an insert that returned has its row in the store."""
        for round in range(10):
            old = [a_row((round, n), micros=1000) for n in range(20)]
            again = [replace(row, referenced_micros=2000) for row in old]
            backend.insert_rows("r", old)

            def insert(rows: Sequence[Row]) -> None:
                backend.insert_rows("r", rows)

            def delete(rows: Sequence[Row]) -> None:
                backend.delete_unreferenced("r", rows)

            work = [(insert, again), (delete, old), (insert, again[::-1]), (delete, old[::-1])]
            at_once(lambda one: one[0](one[1]), work)
            assert backend.read_rows("r", [row.id for row in old]) == by_id(again)

    def test_racing_deletes_report_each_row_once(self, backend: Backend) -> None:
        rows = [a_row(n) for n in range(50)]
        backend.insert_rows("r", rows)
        deleted = at_once(lambda some: backend.delete_unreferenced("r", some), [rows] * 4)
        assert sorted(id for ids in deleted for id in ids) == sorted(by_id(rows))

    def test_a_scan_sees_every_row_once(self, backend: Backend) -> None:
        rows = [a_row(n, "v" if n % 3 else "c") for n in range(1700)]
        backend.insert_rows("r", rows)
        seen = list(backend.scan_rows("r"))
        assert len(seen) == len(rows)
        assert by_id(seen) == by_id(rows)

    def test_a_scan_can_be_limited_to_kinds(self, backend: Backend) -> None:
        rows = [*(a_row(n, "vcuIi"[n % 5]) for n in range(50)), a_custom_row(b"c", "1")]
        backend.insert_rows("r", rows)
        for kinds in (frozenset("c"), frozenset("vi"), frozenset({"I", "c-s"}), frozenset("t")):
            wanted = by_id(row for row in rows if row.kind in kinds)
            assert by_id(backend.scan_rows("r", kinds)) == wanted

    def test_the_parts_of_a_scan_are_disjoint_and_complete(self, backend: Backend) -> None:
        rows = [a_row(n, "v" if n % 3 else "c") for n in range(600)]
        rows += [a_custom_row(id, "1") for id in (b"\0", b"\xff", b"signer-keys-singleton", b"z")]
        backend.insert_rows("r", rows)
        for count in (1, 2, 3, 7, 64, 1000):
            parts = [list(backend.scan_rows("r", part=Slice(n, count))) for n in range(count)]
            together = [row for part in parts for row in part]
            assert len(together) == len(rows)
            assert by_id(together) == by_id(rows)
        halves = [list(backend.scan_rows("r", frozenset("c"), Slice(n, 2))) for n in range(2)]
        assert by_id(halves[0] + halves[1]) == by_id(row for row in rows if row.kind == "c")
        assert all(halves), "each half of many rows should have some"

    def test_a_scan_continues_while_rows_are_inserted_and_deleted(self, backend: Backend) -> None:
        rows = [a_row(n) for n in range(1500)]
        backend.insert_rows("r", rows)
        scan = backend.scan_rows("r")
        seen = [next(scan) for _ in range(10)]
        backend.insert_rows("r", [a_row(n) for n in range(1500, 1600)])
        backend.delete_rows("r", [row.id for row in rows[:100]])
        seen += scan
        assert len(by_id(seen)) == len(seen)
        assert by_id(seen).keys() >= {row.id for row in rows[100:]}

    def test_many_ids_fit_into_one_call(self, backend: Backend) -> None:
        rows = {row.id: row for row in (a_row(n) for n in range(5000))}
        assert backend.insert_rows("r", list(rows.values())) == rows.keys()
        assert backend.read_rows("r", [*rows, *(an_id(-n) for n in range(1, 1000))]) == rows
        assert backend.read_rows("r", []) == {}
        some = list(rows.values())[:2500]
        assert backend.delete_unreferenced("r", some) == {row.id for row in some}
        backend.delete_rows("r", iter(rows))
        assert list(backend.scan_rows("r")) == []

    def test_a_large_row_is_stored(self, backend: Backend) -> None:
        big = a_row("big", "s", size_bytes=1 << 20)
        assert backend.insert_rows("r", [big]) == {big.id}
        backend.insert_rows("r", [replace(big, referenced_micros=2000)])
        assert backend.read_rows("r", [big.id]) == {big.id: replace(big, referenced_micros=2000)}

    def test_repositories_are_separate(self, backend: Backend) -> None:
        def content(repo: str) -> tuple[Ref, list[Row]]:
            custom = a_custom_row(b"signer-keys-singleton", "1", repo.encode())
            return Ref("main", an_id(repo)), [a_row("same", micros=len(repo)), a_row(repo), custom]

        for repo in NEAR_REPOS:
            ref, rows = content(repo)
            assert backend.swap_ref(repo, RefSwap("main", None, ref)), repo
            assert backend.insert_rows(repo, rows) == {row.id for row in rows}, repo
        for repo in NEAR_REPOS:
            ref, rows = content(repo)
            assert backend.read_refs(repo, ["main", "b:main"]) == {"main": ref}, repo
            assert backend.read_rows(repo, [row.id for row in rows]) == by_id(rows), repo
            assert sorted(row.id for row in backend.scan_rows(repo)) == sorted(by_id(rows)), repo
        assert list(backend.scan_rows("c")) == []

    def test_erasing_a_repository_leaves_the_others(self, backend: Backend) -> None:
        for repo in NEAR_REPOS:
            backend.swap_ref(repo, RefSwap("main", None, Ref("main", an_id(repo))))
            backend.insert_rows(repo, [a_row(repo), a_custom_row(b"custom", "1")])
        left = list(NEAR_REPOS)
        while left:
            erased = left.pop(0)
            backend.erase(erased)
            backend.erase("never there")
            assert backend.read_refs(erased, ["main"]) == {}, erased
            assert list(backend.scan_rows(erased)) == [], erased
            for repo in left:
                assert backend.read_refs(repo, ["main"]).keys() == {"main"}, (erased, repo)
                assert len(list(backend.scan_rows(repo))) == 2, (erased, repo)

    def test_an_erased_repository_can_be_created_again(self, backend: Backend) -> None:
        create(backend, MAIN)
        backend.insert_rows("r", [a_row(n) for n in range(1200)])
        backend.erase("r")
        assert create(backend, MAIN)
        assert backend.insert_rows("r", [a_row(1)]) == {an_id(1)}
        assert list(backend.scan_rows("r")) == [a_row(1)]

    def test_closing_twice_is_allowed(self, backend: Backend) -> None:
        create(backend, MAIN)
        backend.close()
        backend.close()


class AppliesAtOnceContract:
    """For a backend with `apply`."""

    def test_apply_inserts_the_rows_and_swaps_the_ref(self, backend: AppliesAtOnceBackend) -> None:
        rows = [a_row(1, "c"), a_row(2), a_row(3, UNIQUE_KIND)]
        applied = backend.apply("r", rows, RefSwap(MAIN.name, None, MAIN))
        assert applied.swapped
        assert applied.new == {row.id for row in rows}
        assert read(backend, MAIN.name) == MAIN
        assert backend.read_rows("r", [row.id for row in rows]) == by_id(rows)

    def test_apply_creates_moves_and_deletes(self, backend: AppliesAtOnceBackend) -> None:
        moved = replace(MOVED, previous=PREVIOUS)
        assert backend.apply("r", [], RefSwap(MAIN.name, None, MAIN)).swapped
        assert backend.apply("r", [], RefSwap(MAIN.name, MAIN, moved)).swapped
        assert read(backend, MAIN.name) == moved
        assert backend.apply("r", [], RefSwap(MAIN.name, MOVED, None)).swapped
        assert backend.read_refs("r", [MAIN.name]) == {}

    def test_apply_refreshes_the_rows_that_are_stored(self, backend: AppliesAtOnceBackend) -> None:
        old = a_row(1, micros=1000)
        backend.insert_rows("r", [old])
        again = replace(old, referenced_micros=2000)
        applied = backend.apply("r", [again, a_row(2)], RefSwap(MAIN.name, None, MAIN))
        assert applied.swapped
        assert applied.new == {an_id(2)}
        assert backend.read_rows("r", [old.id]) == {old.id: again}

    def test_apply_writes_nothing_if_the_expectation_fails(
        self, backend: AppliesAtOnceBackend
    ) -> None:
        old = a_row("old")
        backend.insert_rows("r", [old])
        create(backend, MAIN)
        rows = [a_row(1), a_row(2, UNIQUE_KIND), replace(old, referenced_micros=9000)]
        for expected in (None, MOVED, replace(MAIN, deleted=True)):
            applied = backend.apply("r", rows, RefSwap(MAIN.name, expected, MOVED))
            assert not applied.swapped
            # The caller must be able to distinguish a lost race from a taken unique row.
            assert applied.new == {an_id(2)}
        assert read(backend, MAIN.name) == MAIN
        assert list(backend.scan_rows("r")) == [old]

    def test_apply_writes_nothing_if_a_unique_row_is_taken(
        self, backend: AppliesAtOnceBackend
    ) -> None:
        taken = a_row("taken", UNIQUE_KIND, micros=1000)
        backend.insert_rows("r", [taken])
        create(backend, MAIN)
        rows = [a_row(1), a_row(2, UNIQUE_KIND), replace(taken, referenced_micros=9000), a_row(3)]
        applied = backend.apply("r", rows, RefSwap(MAIN.name, MAIN, MOVED))
        assert not applied.swapped
        assert applied.new == {an_id(2)}
        assert read(backend, MAIN.name) == MAIN
        assert list(backend.scan_rows("r")) == [taken]

    def test_one_of_many_racing_applies_wins(self, backend: AppliesAtOnceBackend) -> None:
        create(backend, MAIN)
        rivals = [replace(MAIN, pointer=an_id(n)) for n in range(THREADS)]
        applied = at_once(
            lambda new: backend.apply("r", [a_row(new.pointer)], RefSwap(MAIN.name, MAIN, new)),
            rivals,
        )
        (winner,) = (n for n, each in enumerate(applied) if each.swapped)
        assert read(backend, MAIN.name) == rivals[winner]
        assert list(backend.scan_rows("r")) == [a_row(rivals[winner].pointer)]

    def test_racing_applies_on_different_refs_all_succeed(
        self, backend: AppliesAtOnceBackend
    ) -> None:
        def chain(name: str) -> None:
            at: Ref | None = None
            for n in range(10):
                new = Ref(name, an_id((name, n)))
                assert backend.apply("r", [a_row((name, n))], RefSwap(name, at, new)).swapped
                assert read(backend, name) == new
                at = new

        names = [f"refs/heads/{n}" for n in range(THREADS)]
        at_once(chain, names)
        assert backend.read_refs("r", names).keys() == set(names)
        assert len(list(backend.scan_rows("r"))) == 10 * THREADS

    def test_a_unique_row_goes_to_one_of_many_racing_applies(
        self, backend: AppliesAtOnceBackend
    ) -> None:
        refs = [Ref(f"refs/heads/{n}", an_id(n)) for n in range(THREADS)]
        unique = a_row("unique", UNIQUE_KIND)
        applied = at_once(
            lambda ref: backend.apply("r", [unique], RefSwap(ref.name, None, ref)), refs
        )
        assert [each.swapped for each in applied].count(True) == 1
        assert len(backend.read_refs("r", [ref.name for ref in refs])) == 1

    def test_a_reader_of_the_ref_finds_the_rows(self, backend: AppliesAtOnceBackend) -> None:
        many, done = [a_row(n) for n in range(1000)], Event()

        def write() -> None:
            at: Ref | None = None
            try:
                for n in range(30):
                    last = a_row(("last", n))
                    new = replace(MAIN, pointer=last.id)
                    assert backend.apply("r", [*many, last], RefSwap(MAIN.name, at, new)).swapped
                    at = new
            finally:
                done.set()

        def look() -> None:
            while not done.is_set():
                for ref in backend.read_refs("r", [MAIN.name]).values():
                    assert backend.read_rows("r", [ref.pointer]), "the ref points nowhere"

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            at_once(lambda do: do(), [write, look, look])
        finally:
            sys.setswitchinterval(interval)

    def test_apply_takes_many_and_large_rows(self, backend: AppliesAtOnceBackend) -> None:
        rows = [a_row(n) for n in range(3000)]
        rows.append(a_row("big", "s", size_bytes=1 << 20))
        assert backend.apply("r", rows, RefSwap(MAIN.name, None, MAIN)).new == by_id(rows).keys()
        assert by_id(backend.scan_rows("r")) == by_id(rows)


class RefLogContract:
    """For a backend that keeps the ref-log."""

    def test_the_newest_lines_come_first(self, backend: RefLogBackend) -> None:
        lines = [line(n) for n in range(10)]
        backend.append_log("r", lines[:4])
        backend.append_log("r", lines[4:5])
        backend.append_log("r", lines[5:])
        backend.append_log("r", [])
        assert backend.read_log("r", None, 100) == lines[::-1]
        assert backend.read_log("never there", None, 100) == []

    def test_the_log_is_read_in_pages(self, backend: RefLogBackend) -> None:
        lines = [line(n) for n in range(25)]
        backend.append_log("r", lines)
        seen: list[LogRow] = []
        while page := backend.read_log("r", seen[-1].key if seen else None, 10):
            assert len(page) <= 10
            seen += page
        assert seen == lines[::-1]
        assert backend.read_log("r", line(7).key + b"\0", 1) == [line(7)]
        assert backend.read_log("r", line(0).key, 10) == []
        assert backend.read_log("r", None, 0) == []

    def test_no_limit_is_too_large(self, backend: RefLogBackend) -> None:
        backend.append_log("r", [line(1), line(2)])
        for limit in (2**31, 2**63 - 1, 2**63, 2**70):
            assert backend.read_log("r", None, limit) == [line(2), line(1)]
            assert backend.read_log("r", line(2).key, limit) == [line(1)]

    def test_lines_are_sorted_by_key_and_not_by_arrival(self, backend: RefLogBackend) -> None:
        for n in (3, 1, 4, 0, 2):
            backend.append_log("r", [line(n)])
        assert backend.read_log("r", None, 9) == [line(n) for n in (4, 3, 2, 1, 0)]

    def test_a_line_that_is_appended_twice_is_stored_once(self, backend: RefLogBackend) -> None:
        backend.append_log("r", [line(1), line(2)])
        backend.append_log("r", [line(1)])
        assert backend.read_log("r", None, 9) == [line(2), line(1)]

    def test_a_key_may_hold_any_bytes(self, backend: RefLogBackend) -> None:
        lines = [LogRow(key, b"") for key in (b"\0", b":", b"a:b", b"b", b"\xff", b"\xff" * 40)]
        backend.append_log("r", lines)
        assert backend.read_log("r", None, 9) == lines[::-1]

    def test_each_repository_has_its_own_log(self, backend: RefLogBackend) -> None:
        for repo in NEAR_REPOS:
            backend.append_log(repo, [LogRow(b"b:key", repo.encode())])
        left = list(NEAR_REPOS)
        while left:
            for repo in left:
                assert backend.read_log(repo, None, 9) == [LogRow(b"b:key", repo.encode())], repo
            erased = left.pop(0)
            backend.erase(erased)
            assert backend.read_log(erased, None, 9) == [], erased

    def test_concurrent_appends_lose_no_line(self, backend: RefLogBackend) -> None:
        at_once(lambda n: backend.append_log("r", [line(n)]), range(THREADS))
        assert backend.read_log("r", None, 99) == [line(n) for n in reversed(range(THREADS))]


class AppliesWithLogContract(AppliesAtOnceContract, RefLogContract):
    """For a backend with both: `apply` writes its log lines atomically with the rest."""

    def test_apply_appends_to_the_log(self, backend: FullBackend) -> None:
        swap = RefSwap(MAIN.name, None, MAIN)
        assert backend.apply("r", [a_row(1)], swap, [line(1), line(2)]).swapped
        assert backend.read_log("r", None, 9) == [line(2), line(1)]

    def test_an_apply_that_fails_logs_nothing(self, backend: FullBackend) -> None:
        backend.insert_rows("r", [a_row(1, UNIQUE_KIND)])
        create(backend, MAIN)
        assert not backend.apply("r", [], RefSwap(MAIN.name, None, MOVED), [line(1)]).swapped
        taken = backend.apply(
            "r", [a_row(1, UNIQUE_KIND)], RefSwap(MAIN.name, MAIN, MOVED), [line(1)]
        )
        assert not taken.swapped
        assert backend.read_log("r", None, 9) == []


class SyncsLaterContract(AppliesWithLogContract):
    """For a backend with `try_apply` and `sync` as well."""

    def test_try_apply_has_the_results_of_apply(self, backend: SyncsLaterBackend) -> None:
        taken, deleted = a_row("taken", UNIQUE_KIND), replace(MOVED, deleted=True)
        steps: list[tuple[list[Row], Ref | None, Ref | None]] = [
            ([a_row(1), a_row(2, "c"), taken], None, MAIN),  # Creates,
            ([a_row(3), a_row(4, UNIQUE_KIND)], None, MOVED),  # finds the ref,
            ([a_row(3), a_row(4, UNIQUE_KIND)], deleted, MOVED),  # expects another one,
            ([a_row(3), a_row(4, UNIQUE_KIND), taken], MAIN, MOVED),  # finds a unique row,
            ([a_row(1, micros=2000), a_row(5)], MAIN, MOVED),  # moves and refreshes a row,
            ([], MOVED, MOVED),
            ([a_row(6)], MOVED, None),  # deletes,
            ([a_row(7)], MOVED, None),  # finds no ref.
            ([], None, None),
        ]
        for number, (rows, expected, new) in enumerate(steps):
            swap, log = RefSwap(MAIN.name, expected, new), [line(number)]
            tried = backend.try_apply("tried", rows, swap, log)
            backend.sync()
            assert tried == backend.apply("applied", rows, swap, log), number
            for what in (
                lambda repo: backend.read_refs(repo, [MAIN.name]),
                lambda repo: by_id(backend.scan_rows(repo)),
                lambda repo: backend.read_log(repo, None, 99),
            ):
                assert what("tried") == what("applied"), number

    def test_readers_get_a_new_ref_when_it_is_durable(self, backend: SyncsLaterBackend) -> None:
        create(backend, MAIN)
        for before, after in ((MAIN, MOVED), (MOVED, None), (None, MAIN)):
            assert tried(backend, 1, before, after)
            durable = before if backend.needs_sync else after
            assert backend.read_refs("r", [MAIN.name]).get(MAIN.name) == durable
            backend.sync()
            assert backend.read_refs("r", [MAIN.name]).get(MAIN.name) == after

    def test_a_ref_can_be_written_again_after_a_sync(self, backend: SyncsLaterBackend) -> None:
        """Until then, `try_apply` may refuse, but not write a part."""
        assert tried(backend, 1, None, MAIN)
        if not tried(backend, 2, MAIN, MOVED):
            assert backend.read_rows("r", [an_id(2)]) == {}
            assert backend.read_log("r", None, 9) == [line(1)]
            backend.sync()
            assert read(backend, MAIN.name) == MAIN
            assert tried(backend, 2, MAIN, MOVED)
        backend.sync()
        assert read(backend, MAIN.name) == MOVED
        assert backend.read_log("r", None, 9) == [line(2), line(1)]

    def test_apply_continues_where_try_apply_left_the_ref(self, backend: SyncsLaterBackend) -> None:
        create(backend, MAIN)
        assert tried(backend, 1, MAIN, MOVED)
        assert not backend.apply("r", [], RefSwap(MAIN.name, MAIN, None)).swapped
        assert backend.apply("r", [], RefSwap(MAIN.name, MOVED, None)).swapped
        assert backend.read_refs("r", [MAIN.name]) == {}

    def test_one_sync_is_enough_for_several_writes(self, backend: SyncsLaterBackend) -> None:
        refs = {f"refs/heads/{n}": Ref(f"refs/heads/{n}", an_id(n)) for n in range(9)}
        for number, ref in enumerate(refs.values()):
            assert tried(backend, number, None, ref)
        backend.sync()
        assert backend.read_refs("r", list(refs)) == refs
        assert backend.read_log("r", None, 99) == [line(n) for n in reversed(range(9))]

    def test_racing_tries_write_everything_or_nothing(self, backend: SyncsLaterBackend) -> None:
        create(backend, MAIN)
        rivals = [replace(MAIN, pointer=an_id(n)) for n in range(THREADS)]

        def write(number: int) -> bool:
            while (done := try_once(backend, number, MAIN, rivals[number])) is None:
                backend.sync()
            backend.sync()
            return done.swapped

        won = at_once(write, range(THREADS))
        assert won.count(True) == 1
        winner = won.index(True)
        assert read(backend, MAIN.name) == rivals[winner]
        assert list(backend.scan_rows("r")) == [a_row(winner)]
        assert backend.read_log("r", None, 99) == [line(winner)]


class SwapsTogetherContract:
    """For a backend with `apply_all` and the ref-log."""

    def test_apply_all_creates_moves_and_deletes(self, backend: TogetherBackend) -> None:
        gone = Ref("gone", an_id("gone"), extended_info=an_id("info"))
        new = Ref("new", an_id("new"), extended_info=an_id("info"), previous=PREVIOUS)
        old = a_row("old", micros=1000)
        create(backend, MAIN)
        create(backend, gone)
        backend.insert_rows("r", [old])
        again = replace(old, referenced_micros=2000)
        swaps = [
            RefSwap(MAIN.name, MAIN, MOVED),
            RefSwap(new.name, None, new),
            RefSwap(gone.name, gone, None),
        ]
        assert backend.apply_all("r", [again, a_row(1, "c")], swaps, [line(1), line(2)])
        refs = backend.read_refs("r", [MAIN.name, new.name, gone.name])
        assert refs == {MAIN.name: MOVED, new.name: new}
        assert by_id(backend.scan_rows("r")) == by_id([again, a_row(1, "c")])
        assert backend.read_log("r", None, 9) == [line(2), line(1)]

    def test_apply_all_writes_nothing_if_an_expectation_fails(
        self, backend: TogetherBackend
    ) -> None:
        gone, new = Ref("gone", an_id("gone")), Ref("new", an_id("new"))
        create(backend, MAIN)
        create(backend, gone)
        good = RefSwap(MAIN.name, MAIN, MOVED), RefSwap(new.name, None, new)
        for bad in (
            RefSwap(gone.name, None, gone),
            RefSwap(gone.name, replace(gone, created_micros=9), None),
            RefSwap(gone.name, replace(gone, extended_info=an_id(1)), replace(gone, deleted=True)),
            RefSwap("never there", replace(gone, name="never there"), None),
        ):
            for swaps in ([*good, bad], [bad, *good]):
                assert not backend.apply_all("r", [a_row(1)], swaps, [line(1)])
        refs = backend.read_refs("r", [MAIN.name, new.name, gone.name, "never there"])
        assert refs == {MAIN.name: MAIN, gone.name: gone}
        assert list(backend.scan_rows("r")) == []
        assert backend.read_log("r", None, 9) == []

    def test_racing_apply_alls_count_each_win_once(self, backend: TogetherBackend) -> None:
        """Each thread creates or deletes a ref of its own and moves one that all move."""
        create(backend, Ref("count", an_id(0)))

        def work(number: int) -> None:
            own: Ref | None = None
            for _ in range(6):
                other = Ref(f"own-{number}", an_id(number)) if own is None else None
                while True:
                    now = read(backend, "count")
                    swaps = [
                        RefSwap("count", now, replace(now, created_micros=now.created_micros + 1)),
                        RefSwap(f"own-{number}", own, other),
                    ]
                    if backend.apply_all("r", [], swaps):
                        break
                own = other

        at_once(work, range(THREADS))
        assert read(backend, "count").created_micros == 6 * THREADS
        assert backend.read_refs("r", [f"own-{n}" for n in range(THREADS)]) == {}


class QuickSwapsTogetherContract(SyncsLaterContract, SwapsTogetherContract):
    """For a backend with `try_apply_all` as well."""

    def test_try_apply_all_has_the_results_of_apply_all(self, backend: QuickBackend) -> None:
        other, deleted = Ref("other", an_id("other")), replace(MOVED, deleted=True)
        steps: list[tuple[list[Row], list[RefSwap]]] = [
            (
                [a_row(1), a_row(2, "c")],
                [RefSwap(MAIN.name, None, MAIN), RefSwap("other", None, other)],
            ),
            ([a_row(3)], [RefSwap(MAIN.name, MAIN, MOVED), RefSwap("other", None, other)]),
            ([a_row(3)], [RefSwap(MAIN.name, deleted, MOVED), RefSwap("other", other, None)]),
            (
                [a_row(1, micros=2000)],
                [RefSwap(MAIN.name, MAIN, MOVED), RefSwap("other", other, None)],
            ),
        ]
        for number, (rows, swaps) in enumerate(steps):
            log = [line(number)]
            tried = backend.try_apply_all("tried", rows, swaps, log)
            backend.sync()
            assert tried == backend.apply_all("applied", rows, swaps, log), number
            for what in (
                lambda repo: backend.read_refs(repo, [MAIN.name, "other"]),
                lambda repo: by_id(backend.scan_rows(repo)),
                lambda repo: backend.read_log(repo, None, 99),
            ):
                assert what("tried") == what("applied"), number

    def test_readers_get_all_new_refs_when_they_are_durable(self, backend: QuickBackend) -> None:
        new = Ref("new", an_id("new"))
        create(backend, MAIN)
        swaps = [RefSwap(MAIN.name, MAIN, None), RefSwap("new", None, new)]
        assert backend.try_apply_all("r", [a_row(1)], swaps, [line(1)])
        durable = {MAIN.name: MAIN} if backend.needs_sync else {"new": new}
        assert backend.read_refs("r", [MAIN.name, "new"]) == durable
        backend.sync()
        assert backend.read_refs("r", [MAIN.name, "new"]) == {"new": new}

    def test_refs_of_which_one_is_not_durable_are_changed_after_a_sync(
        self, backend: QuickBackend
    ) -> None:
        """Until then, `try_apply_all` may refuse, but not write a part."""
        new = Ref("new", an_id("new"))
        assert tried(backend, 1, None, MAIN)
        swaps = [RefSwap("new", None, new), RefSwap(MAIN.name, MAIN, MOVED)]
        if not backend.try_apply_all("r", [a_row(2)], swaps, [line(2)]):
            assert backend.read_rows("r", [an_id(2)]) == {}
            assert backend.read_log("r", None, 9) == [line(1)]
            backend.sync()
            assert backend.read_refs("r", [MAIN.name, "new"]) == {MAIN.name: MAIN}
            assert backend.try_apply_all("r", [a_row(2)], swaps, [line(2)])
        backend.sync()
        assert backend.read_refs("r", [MAIN.name, "new"]) == {MAIN.name: MOVED, "new": new}


class DurableBackendContract(BackendContract):
    """For a backend whose data outlives its process.

    Also add a fixture `reopen`: a function that closes the store and returns it opened again. It
    may be called several times.
    """

    def test_a_reopened_store_has_everything_that_was_written(
        self, backend: Backend, reopen: Callable[[], Backend]
    ) -> None:
        ref = replace(MAIN, extended_info=an_id("info"), previous=PREVIOUS)
        rows = [a_row(1), a_row(2, "c"), a_custom_row(b"custom", "1")]
        create(backend, ref)
        create(backend, Ref("gone", an_id(1)))
        move(backend, Ref("gone", an_id(1)), None)
        backend.insert_rows("r", [*rows, a_row(3)])
        backend.delete_rows("r", [an_id(3)])
        backend = reopen()
        assert backend.read_refs("r", [MAIN.name, "gone"]) == {MAIN.name: ref}
        assert by_id(backend.scan_rows("r")) == by_id(rows)
        assert move(backend, ref, MOVED)
        assert not backend.insert_rows("r", rows)

    def test_reopening_often_loses_nothing(
        self, backend: Backend, reopen: Callable[[], Backend]
    ) -> None:
        for n in range(4):
            assert backend.insert_rows("r", [a_row(n)]) == {an_id(n)}
            backend = reopen()
        assert len(list(backend.scan_rows("r"))) == 4

    def test_an_unfinished_scan_does_not_prevent_closing(
        self, backend: Backend, reopen: Callable[[], Backend]
    ) -> None:
        backend.insert_rows("r", [a_row(n) for n in range(1200)])
        scan = backend.scan_rows("r")
        next(scan)
        assert len(list(reopen().scan_rows("r"))) == 1200


class AppliesAtOnceBackend(Backend, AppliesAtOnce, Protocol): ...


class RefLogBackend(Backend, KeepsRefLog, Protocol): ...


class FullBackend(Backend, AppliesAtOnce, KeepsRefLog, Protocol): ...


class TogetherBackend(Backend, SwapsTogether, KeepsRefLog, Protocol): ...


class SyncsLaterBackend(Backend, SyncsLater, KeepsRefLog, Protocol): ...


class QuickBackend(Backend, QuickSwapsTogether, KeepsRefLog, Protocol): ...


def create(backend: Backend, ref: Ref) -> bool:
    return backend.swap_ref("r", RefSwap(ref.name, None, ref))


def move(backend: Backend, expected: Ref, new: Ref | None) -> bool:
    return backend.swap_ref("r", RefSwap(expected.name, expected, new))


def try_once(
    backend: SyncsLaterBackend, number: int, expected: Ref | None, new: Ref | None
) -> Applied | None:
    """Swap the ref `MAIN`, or the one that is given, together with a row and a line."""
    name = (expected or new or MAIN).name
    return backend.try_apply("r", [a_row(number)], RefSwap(name, expected, new), [line(number)])


def tried(backend: SyncsLaterBackend, number: int, expected: Ref | None, new: Ref | None) -> bool:
    """Whether `try_once` wrote."""
    applied = try_once(backend, number, expected, new)
    return applied is not None and applied.swapped


def read(backend: Backend, name: str) -> Ref:
    return backend.read_refs("r", [name])[name]


def count(backend: Backend, times: int) -> None:
    """Move the ref `count` this many times, each time from its current state."""
    for _ in range(times):
        while True:
            now = read(backend, "count")
            if move(backend, now, replace(now, created_micros=now.created_micros + 1)):
                break


def line(number: int) -> LogRow:
    return LogRow(number.to_bytes(8, "big"), b"line %d" % number)


def by_id(rows: Iterable[Row]) -> dict[ObjId, Row]:
    return {row.id: row for row in rows}


def at_once(do: Callable[[A], T], arguments: Sequence[A]) -> list[T]:
    """Call with each argument in a thread of its own, all at the same moment."""
    start = Barrier(len(arguments))

    def one(argument: A) -> T:
        start.wait(timeout=30)
        return do(argument)

    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(one, arguments))

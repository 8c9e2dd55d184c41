"""Calls and objects that are split to fit the limits of an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from morag import BadRequest, ContentKey, IcebergTable, Put, Settings
from morag.backend.base import Limits, LimitsNames
from morag.backend.memory import MemoryBackend
from morag.backend.read_only import ReadOnlyBackend
from morag.backend.splitting import SplittingBackend
from morag.testing.backend_contract import BackendContract, RefLogContract, a_row
from morag.versions.repository import Repository
from morag.versions.tickets import Waiter
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from morag.backend.base import Applied, Backend, LogRow, ObjId, Ref, RefSwap, Row

ROW_BYTES: Final = 20_000
TABLES: Final = 8_000


class Narrow(MemoryBackend):
    """Refuses calls and rows that are too large, as engines do, and has no `apply`."""

    apply: None = None  # type: ignore[assignment]

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.limits = limits
        self.calls = 0
        self.largest = 0

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        self._check(names)
        return super().read_refs(repo, names)

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        self._check(ids)
        return super().read_rows(repo, ids)

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        self._check(rows)
        sizes = [len(row.data) for row in rows]
        assert max(sizes) <= self.limits.row_bytes
        assert sum(sizes) <= self.limits.bytes_at_once or len(rows) == 1
        self.largest = max(self.largest, *sizes)
        return super().insert_rows(repo, rows)

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        ids = list(ids)
        self._check(ids)
        super().delete_rows(repo, ids)

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        self._check(rows)
        return super().delete_unreferenced(repo, rows)

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        self._check(rows)
        super().append_log(repo, rows)

    def _check(self, items: Sequence[object]) -> None:
        self.calls += 1
        assert 0 < len(items) <= self.limits.rows_at_once


class TestSplit(BackendContract, RefLogContract):
    @pytest.fixture
    def backend(self) -> SplittingBackend:
        narrow = Narrow(Limits(rows_at_once=3, bytes_at_once=5_000_000, row_bytes=1 << 30))
        return SplittingBackend(narrow)


def test_as_many_rows_as_fit_share_a_call() -> None:
    narrow = Narrow(Limits(rows_at_once=10, bytes_at_once=1_000, row_bytes=5_000))
    rows = [a_row(n, size_bytes=250) for n in range(9)] + [a_row("large", size_bytes=4_000)]
    assert SplittingBackend(narrow).insert_rows("r", rows) == {row.id for row in rows}
    assert narrow.calls == 4  # Three calls with three rows, and one with the large row.


LARGE: Final = Settings(max_incremental_index_bytes=1 << 20, max_index_segment_bytes=1 << 22)
SMALL: Final = Settings(min_index_segment_bytes=200, max_index_segment_bytes=2_000)


@pytest.mark.parametrize("settings", [LARGE, SMALL], ids=["large", "small"])
def test_no_object_exceeds_the_limit_of_the_engine(settings: Settings) -> None:
    """This holds for commits, for stripes of the index, and for lists of many small stripes."""
    narrow = Narrow(Limits(rows_at_once=100, bytes_at_once=1 << 20, row_bytes=ROW_BYTES))
    with Repository(SplittingBackend(narrow), settings, World()) as repository:
        for first in range(0, TABLES, 100):
            repository.commit("main", [_put(n) for n in range(first, first + 100)], "some")
        repository.commit("main", [_put(TABLES)], "one more, to spill the last ones")
        assert len(list(repository.contents.entries("main"))) == TABLES + 1
        assert ROW_BYTES // 4 < narrow.largest <= ROW_BYTES


def test_a_commit_that_exceeds_the_limit_is_refused() -> None:
    narrow = Narrow(Limits(rows_at_once=100, bytes_at_once=1 << 20, row_bytes=ROW_BYTES))
    with Repository(SplittingBackend(narrow), Settings(), World()) as repository:
        before = repository.resolve("main").hash
        with pytest.raises(BadRequest, match="larger than the store allows"):
            repository.commit("main", [_put(n) for n in range(1_000)], "too many at once")
        assert repository.resolve("main").hash == before


class ShortNames(MemoryBackend):
    most_name_characters = 40


class NarrowShortNames(Narrow):
    most_name_characters = 40


@pytest.mark.parametrize(
    "backend",
    [ShortNames(), SplittingBackend(NarrowShortNames(Limits(100, 1 << 20, ROW_BYTES)))],
    ids=["whole", "split"],
)
def test_a_name_that_exceeds_the_limit_is_refused_before_its_commit(backend: Backend) -> None:
    branch, tag = "n" * 29, "t" * 30
    with Repository(backend, Settings(), World()) as repository:
        references = repository.references
        references.create_branch(branch, "main")
        references.create_tag(tag, "main")
        for create in (references.create_branch, references.create_tag):
            with pytest.raises(BadRequest, match=r"4[12] characters.*store allows \(40\)"):
                create("x" * 31, "main")
        assert {each.name for each in references.list()} == {"main", branch, tag}


def test_a_read_only_backend_has_the_limit_of_names() -> None:
    reader = ReadOnlyBackend(ShortNames())
    assert isinstance(reader, LimitsNames)
    assert reader.most_name_characters == 40
    assert not isinstance(ReadOnlyBackend(MemoryBackend()), LimitsNames)


class SmallRows(MemoryBackend):
    """Has `apply`, which refuses a commit with a row that is too large."""

    row_bytes = ROW_BYTES

    def apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied:
        assert all(len(row.data) <= self.row_bytes for row in rows)
        return super().apply(repo, rows, swap, log)


def test_a_commit_that_exceeds_the_limit_does_not_fail_its_batch() -> None:
    with Repository(SmallRows(), Settings(), World()) as repository:
        small, large = [_put(0)], [_put(n) for n in range(1, 1_000)]
        tickets = [
            Waiter(repository.commit_request("main", operations, "one of three"))
            for operations in (small, large, [_put(1_000)])
        ]
        lane = repository._writers().lanes.lane("main")
        assert lane.join(tickets)
        lane.drive(tickets[-1])
        with pytest.raises(BadRequest, match="larger than the store allows"):
            tickets[1].result()
        for good in tickets[::2]:
            good.result()
        assert len(list(repository.contents.entries("main"))) == 2


def _put(number: int) -> Put:
    table = IcebergTable(
        metadata_location=f"s3://{number}", snapshot_id=1, schema_id=0, spec_id=0, sort_order_id=0
    )
    return Put(ContentKey.of(f"table-{number:06}"), table)

"""The counting and the faulty backend: both keep the contract, count and fail as described."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag.backend.base import (
    UNIQUE_KIND,
    WHOLE,
    AppliesAtOnce,
    KeepsRefLog,
    Ref,
    RefSwap,
    SyncsLater,
)
from morag.backend.memory import MemoryBackend
from morag.testing.backend_contract import (
    MAIN,
    MOVED,
    BackendContract,
    RefLogContract,
    SwapsTogetherContract,
    SyncsLaterContract,
    a_custom_row,
    a_row,
    an_id,
    create,
    line,
    move,
    read,
)
from tests.backend.counting import CountingBackend
from tests.backend.faulty import (
    POSSIBLE,
    Dice,
    Fault,
    FaultyBackend,
    InjectedFault,
    QuickTogetherBackend,
    Script,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from morag.backend.base import Backend, ObjId, Row, Slice

NO_FAULTS = Script({})


class TestCountingKeepsTheContract(BackendContract, SyncsLaterContract, SwapsTogetherContract):
    @pytest.fixture
    def backend(self) -> CountingBackend:
        return CountingBackend(MemoryBackend())


class TestFaultyKeepsTheContract(BackendContract, SyncsLaterContract):
    @pytest.fixture
    def backend(self) -> FaultyBackend:
        return FaultyBackend(MemoryBackend(), NO_FAULTS)


class TestWeakKeepsTheContract(BackendContract, RefLogContract):
    @pytest.fixture
    def backend(self) -> FaultyBackend:
        return FaultyBackend(MemoryBackend(), NO_FAULTS, weak=True)


class Plain:
    """A backend without optional methods."""

    def __init__(self) -> None:
        self._memory = MemoryBackend()

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        return self._memory.read_refs(repo, names)

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        return self._memory.swap_ref(repo, swap)

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        return self._memory.read_rows(repo, ids)

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        return self._memory.insert_rows(repo, rows)

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        return self._memory.swap_row(repo, expected, new)

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        self._memory.delete_rows(repo, ids)

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        return self._memory.delete_unreferenced(repo, rows)

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        return self._memory.scan_rows(repo, kinds, part)

    def erase(self, repo: str) -> None:
        self._memory.erase(repo)

    def close(self) -> None:
        self._memory.close()


def can(backend: Backend) -> tuple[bool, bool, bool]:
    optional = (AppliesAtOnce, SyncsLater, KeepsRefLog)
    applies, syncs_later, logs = (isinstance(backend, protocol) for protocol in optional)
    return applies, syncs_later, logs


def test_a_wrapper_has_the_optional_methods_of_its_backend() -> None:
    weak = FaultyBackend(MemoryBackend(), NO_FAULTS, weak=True)
    assert can(MemoryBackend()) == (True, True, True)
    assert can(CountingBackend(MemoryBackend())) == (True, True, True)
    assert can(FaultyBackend(MemoryBackend(), NO_FAULTS)) == (True, True, True)
    assert can(FaultyBackend(CountingBackend(MemoryBackend()), NO_FAULTS)) == (True, True, True)
    assert can(weak) == (False, False, True)
    assert can(CountingBackend(weak)) == (False, False, True)
    assert can(CountingBackend(Plain())) == (False, False, False)
    assert can(FaultyBackend(Plain(), NO_FAULTS)) == (False, False, False)


class TestFaults:
    @pytest.fixture
    def memory(self) -> MemoryBackend:
        return MemoryBackend()

    def test_a_fault_before_a_call_prevents_the_call(self, memory: MemoryBackend) -> None:
        backend = FaultyBackend(memory, Script({("swap_ref", 2): Fault.BEFORE}))
        assert create(backend, MAIN)
        with pytest.raises(InjectedFault):
            move(backend, MAIN, MOVED)
        assert read(memory, MAIN.name) == MAIN
        assert move(backend, MAIN, MOVED)
        assert backend.injected == [("swap_ref", 2, Fault.BEFORE)]

    def test_a_fault_after_a_call_loses_only_the_reply(self, memory: MemoryBackend) -> None:
        backend = FaultyBackend(
            memory, Script({("swap_ref", 1): Fault.AFTER, ("apply", 1): Fault.AFTER})
        )
        with pytest.raises(InjectedFault):
            create(backend, MAIN)
        assert read(memory, MAIN.name) == MAIN
        with pytest.raises(InjectedFault):
            backend.apply("r", [a_row(1)], RefSwap(MAIN.name, MAIN, MOVED), [line(1)])
        assert read(memory, MAIN.name) == MOVED
        assert list(memory.scan_rows("r")) == [a_row(1)]
        assert memory.read_log("r", None, 9) == [line(1)]

    def test_a_fault_between_the_steps_of_apply_leaves_the_ref_unmoved(
        self, memory: MemoryBackend
    ) -> None:
        backend = FaultyBackend(memory, Script({("apply", 1): Fault.BETWEEN}))
        create(backend, MAIN)
        with pytest.raises(InjectedFault):
            backend.apply("r", [a_row(1)], RefSwap(MAIN.name, MAIN, MOVED), [line(1)])
        assert list(memory.scan_rows("r")) == [a_row(1)]
        assert read(memory, MAIN.name) == MAIN
        assert memory.read_log("r", None, 9) == []

    def test_a_fault_in_the_middle_of_a_call_executes_half_of_it(
        self, memory: MemoryBackend
    ) -> None:
        backend = FaultyBackend(
            memory,
            Script(
                {
                    ("insert_rows", 1): Fault.BETWEEN,
                    ("delete_rows", 1): Fault.BETWEEN,
                    ("scan_rows", 1): Fault.BETWEEN,
                    ("append_log", 1): Fault.BETWEEN,
                }
            ),
        )
        rows = [a_row(n) for n in range(4)]
        with pytest.raises(InjectedFault):
            backend.insert_rows("r", rows)
        assert list(memory.scan_rows("r")) == rows[:2]
        scanned = []
        with pytest.raises(InjectedFault):
            for row in backend.scan_rows("r"):
                scanned.append(row)  # noqa: PERF402 - The rows before the fault must be kept.
        assert scanned == rows[:1]
        with pytest.raises(InjectedFault):
            backend.delete_rows("r", [row.id for row in rows[:2]])
        assert list(memory.scan_rows("r")) == rows[1:2]
        with pytest.raises(InjectedFault):
            backend.append_log("r", [line(1), line(2)])
        assert memory.read_log("r", None, 9) == [line(1)]

    def test_a_stale_read_returns_the_ref_before_the_last_swap(self, memory: MemoryBackend) -> None:
        backend = FaultyBackend(
            memory, Script({("read_refs", n): Fault.STALE for n in (1, 3, 4)}), weak=True
        )
        create(backend, MAIN)
        other = Ref("other", an_id("other"))
        memory.swap_ref("r", RefSwap("other", None, other))
        assert backend.read_refs("r", [MAIN.name]) == {}
        assert backend.read_refs("r", [MAIN.name]) == {MAIN.name: MAIN}
        move(backend, MAIN, MOVED)
        names = [MAIN.name, "other", "never there"]
        assert backend.read_refs("r", names) == {MAIN.name: MAIN, "other": other}
        move(backend, MOVED, None)
        assert backend.read_refs("r", names) == {MAIN.name: MOVED, "other": other}
        assert backend.read_refs("r", names) == {"other": other}

    def test_a_stale_read_returns_the_ref_before_an_apply(self, memory: MemoryBackend) -> None:
        backend = FaultyBackend(memory, Script({("read_refs", 1): Fault.STALE}))
        create(backend, MAIN)
        backend.apply("r", [], RefSwap(MAIN.name, MAIN, MOVED))
        assert read(backend, MAIN.name) == MAIN

    def test_a_delayed_call_sleeps_and_is_then_executed(self, memory: MemoryBackend) -> None:
        slept: list[float] = []
        plan = Script({("swap_ref", 1): Fault.DELAY})
        backend = FaultyBackend(memory, plan, delay_seconds=0.5, sleep=slept.append)
        assert create(backend, MAIN)
        assert slept == [0.5]

    def test_every_possible_fault_of_every_method_has_an_effect(self) -> None:
        calls: dict[str, Callable[[QuickTogetherBackend], object]] = {
            "read_refs": lambda b: b.read_refs("r", ["main"]),
            "swap_ref": lambda b: create(b, MAIN),
            "read_rows": lambda b: b.read_rows("r", [an_id(1)]),
            "insert_rows": lambda b: b.insert_rows("r", [a_row(1)]),
            "swap_row": lambda b: b.swap_row("r", a_row(1), None),
            "delete_rows": lambda b: b.delete_rows("r", [an_id(1)]),
            "delete_unreferenced": lambda b: b.delete_unreferenced("r", [a_row(1)]),
            "scan_rows": lambda b: list(b.scan_rows("r")),
            "erase": lambda b: b.erase("r"),
            "apply": lambda b: b.apply("r", [], RefSwap(MAIN.name, None, MAIN)),
            "apply_all": lambda b: b.apply_all("r", [], [RefSwap(MAIN.name, None, MAIN)]),
            "try_apply": lambda b: b.try_apply("r", [], RefSwap(MAIN.name, None, MAIN)),
            "try_apply_all": lambda b: b.try_apply_all("r", [], [RefSwap(MAIN.name, None, MAIN)]),
            "sync": lambda b: b.sync(),
            "append_log": lambda b: b.append_log("r", [line(1)]),
            "read_log": lambda b: b.read_log("r", None, 1),
        }
        assert calls.keys() == POSSIBLE.keys()
        for method, faults in POSSIBLE.items():
            for fault in faults:
                backend = QuickTogetherBackend(MemoryBackend(), Script({(method, 1): fault}))
                if fault in (Fault.DELAY, Fault.STALE, Fault.FALSE_AFTER, Fault.WOULD_WAIT):
                    calls[method](backend)
                else:
                    with pytest.raises(InjectedFault):
                        calls[method](backend)
                assert backend.injected == [(method, 1, fault)]
                calls[method](backend)
                assert len(backend.injected) == 1

    def test_a_script_refuses_impossible_faults(self) -> None:
        with pytest.raises(ValueError, match="read_rows"):
            Script({("read_rows", 1): Fault.STALE})

    def test_dice_are_repeatable_for_a_seed(self) -> None:
        calls = [(method, n) for method in POSSIBLE for n in range(1, 200)]
        one, same, other = Dice(1, 0.2), Dice(1, 0.2), Dice(2, 0.2)
        faults = [one.fault(*call) for call in calls]
        assert faults == [same.fault(*call) for call in reversed(calls)][::-1]
        assert faults != [other.fault(*call) for call in calls]
        assert {fault for fault in faults if fault} == set(Fault)
        assert 0.15 < sum(fault is not None for fault in faults) / len(faults) < 0.25

    def test_dice_can_be_limited_to_methods_and_faults(self) -> None:
        dice = Dice(1, 1.0, methods=["swap_ref", "read_rows"], faults=[Fault.AFTER])
        assert dice.fault("swap_ref", 1) is Fault.AFTER
        assert dice.fault("read_rows", 1) is None
        assert dice.fault("apply", 1) is None


class TestCounting:
    def test_calls_and_rows_are_counted(self) -> None:
        backend = CountingBackend(MemoryBackend())
        create(backend, MAIN)
        backend.insert_rows("r", [a_row(1), a_row(2, "c"), a_custom_row(b"c", "1")])
        backend.apply("r", [a_row(3, UNIQUE_KIND), a_row(1)], RefSwap(MAIN.name, MAIN, MOVED))
        backend.apply("r", [a_row(4, "i")], RefSwap(MAIN.name, MAIN, MOVED))
        backend.read_rows("r", [an_id(1), an_id(2), an_id("?")])
        list(backend.scan_rows("r", frozenset("c")))
        assert backend.counts == {
            "swap_ref": 1,
            "insert_rows": 1,
            "apply": 2,
            "read_rows": 1,
            "scan_rows": 1,
        }
        assert backend.rows == {"insert_rows": 3, "apply": 3, "read_rows": 3, "scan_rows": 1}
        assert backend.rows_read_by_kind == {"v": 1, "c": 2}
        assert backend.rows_written_by_kind == {"v": 2, "c": 1, "c-s": 1, UNIQUE_KIND: 1}
        backend.reset()
        assert not backend.counts + backend.rows
        assert not backend.rows_read_by_kind + backend.rows_written_by_kind
        read(backend, MAIN.name)
        assert backend.counts == {"read_refs": 1}

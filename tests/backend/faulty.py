"""A backend that fails as planned, so that tests can check how its callers react."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from enum import Enum
from random import Random
from threading import Lock
from typing import TYPE_CHECKING, Protocol, TypeVar

from morag.backend.base import (
    WHOLE,
    Applied,
    AppliesAtOnce,
    KeepsRefLog,
    QuickSwapsTogether,
    SwapsTogether,
    SyncsLater,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from morag.backend.base import Backend, LogRow, ObjId, Ref, RefSwap, Row, Slice

T = TypeVar("T")


class InjectedFault(Exception):
    """Any error of a database, which may or may not have executed the call."""


class Fault(Enum):
    BEFORE = "fails, and nothing was done"
    AFTER = "is done, but the reply is lost"
    FALSE_AFTER = "is done, but reports failure: a driver sent it twice"
    BETWEEN = "stops half-way: some rows are written or read, the ref is not swapped"
    STALE = "returns refs from before the last swap"
    DELAY = "is slow"
    WOULD_WAIT = "does nothing, because it would have to wait"


POSSIBLE: Mapping[str, tuple[Fault, ...]] = {
    "read_refs": (Fault.BEFORE, Fault.STALE, Fault.DELAY),
    "swap_ref": (Fault.BEFORE, Fault.AFTER, Fault.FALSE_AFTER, Fault.DELAY),
    "read_rows": (Fault.BEFORE, Fault.DELAY),
    "insert_rows": (Fault.BEFORE, Fault.AFTER, Fault.BETWEEN, Fault.DELAY),
    "swap_row": (Fault.BEFORE, Fault.AFTER, Fault.FALSE_AFTER, Fault.DELAY),
    "delete_rows": (Fault.BEFORE, Fault.AFTER, Fault.BETWEEN, Fault.DELAY),
    "delete_unreferenced": (Fault.BEFORE, Fault.AFTER, Fault.BETWEEN, Fault.DELAY),
    "scan_rows": (Fault.BEFORE, Fault.BETWEEN, Fault.DELAY),
    "erase": (Fault.BEFORE, Fault.AFTER, Fault.DELAY),
    "apply": (Fault.BEFORE, Fault.AFTER, Fault.FALSE_AFTER, Fault.BETWEEN, Fault.DELAY),
    "apply_all": (Fault.BEFORE, Fault.AFTER, Fault.FALSE_AFTER, Fault.DELAY),
    "try_apply": (Fault.BEFORE, Fault.AFTER, Fault.WOULD_WAIT, Fault.DELAY),
    "try_apply_all": (Fault.BEFORE, Fault.AFTER, Fault.WOULD_WAIT, Fault.DELAY),
    "sync": (Fault.BEFORE, Fault.AFTER, Fault.DELAY),
    "append_log": (Fault.BEFORE, Fault.AFTER, Fault.BETWEEN, Fault.DELAY),
    "read_log": (Fault.BEFORE, Fault.DELAY),
}
"""The possible faults of each method. `close` never fails: tests must be able to clean up."""


class Plan(Protocol):
    def fault(self, method: str, call: int) -> Fault | None:
        """The fault of this call. Calls of a method are numbered from 1."""
        ...


class Script:
    """Faults by method and call number: `Script({("swap_ref", 2): Fault.AFTER})`."""

    def __init__(self, faults: Mapping[tuple[str, int], Fault]) -> None:
        for (method, _), fault in faults.items():
            if fault not in POSSIBLE[method]:
                raise ValueError(f"{method} cannot be made to fail with {fault}")
        self._faults = dict(faults)

    def fault(self, method: str, call: int) -> Fault | None:
        return self._faults.get((method, call))


class Dice:
    """Random faults, determined by the seed, the method and the call number.

    They do not depend on how the calls of several threads or methods interleave.
    """

    def __init__(
        self,
        seed: int,
        rate: float,
        methods: Iterable[str] = POSSIBLE,
        faults: Iterable[Fault] = Fault,
    ) -> None:
        self._seed, self._rate = seed, rate
        allowed = frozenset(faults)
        self._faults = {
            method: [fault for fault in POSSIBLE[method] if fault in allowed] for method in methods
        }

    def fault(self, method: str, call: int) -> Fault | None:
        random = Random(f"{self._seed} {method} {call}")
        choice = self._faults.get(method)
        return random.choice(choice) if choice and random.random() < self._rate else None


class FaultyBackend:
    """Passes every call to `backend`, except those with a fault in the plan.

    It has `apply`, `try_apply` and the ref-log if the wrapped backend has them. `weak` hides the
    first two, so that its caller inserts the rows first and swaps the ref last. `TogetherBackend`
    has `apply_all`.
    """

    def __init__(
        self,
        backend: Backend,
        plan: Plan,
        *,
        weak: bool = False,
        delay_seconds: float = 0.001,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.injected: list[tuple[str, int, Fault]] = []
        self.plan = plan
        self._backend = backend
        self._delay_seconds, self._sleep = delay_seconds, sleep
        self._calls: Counter[str] = Counter()
        self._older: defaultdict[str, dict[str, Ref | None]] = defaultdict(dict)
        self._lock = Lock()
        # Set on the instance: `isinstance` recognises an optional protocol by its methods.
        if isinstance(backend, AppliesAtOnce) and not weak:
            self._applying: AppliesAtOnce = backend
            self.apply = self._apply
        if isinstance(backend, SyncsLater) and not weak:
            self._quick: SyncsLater = backend
            self.needs_sync = backend.needs_sync
            self.try_apply, self.sync = self._try_apply, self._sync
        if isinstance(backend, KeepsRefLog):
            self._logging: KeepsRefLog = backend
            self.append_log, self.read_log = self._append_log, self._read_log

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        fault = self._next("read_refs")
        refs = self._do(fault, lambda: self._backend.read_refs(repo, names))
        if fault is not Fault.STALE:
            return refs
        older = self._older[repo]
        stale = {name: older.get(name, refs.get(name)) for name in names}
        return {name: ref for name, ref in stale.items() if ref is not None}

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        fault = self._next("swap_ref")
        swapped = self._do(fault, lambda: self._swap(repo, swap))
        return swapped and fault is not Fault.FALSE_AFTER

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        return self._do(self._next("read_rows"), lambda: self._backend.read_rows(repo, ids))

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        fault = self._next("insert_rows")
        if fault is Fault.BETWEEN:
            self._backend.insert_rows(repo, rows[: len(rows) // 2])
        return self._do(fault, lambda: self._backend.insert_rows(repo, rows))

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        fault = self._next("swap_row")
        swapped = self._do(fault, lambda: self._backend.swap_row(repo, expected, new))
        return swapped and fault is not Fault.FALSE_AFTER

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        fault, ids = self._next("delete_rows"), list(ids)
        if fault is Fault.BETWEEN:
            self._backend.delete_rows(repo, ids[: len(ids) // 2])
        self._do(fault, lambda: self._backend.delete_rows(repo, ids))

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        fault = self._next("delete_unreferenced")
        if fault is Fault.BETWEEN:
            self._backend.delete_unreferenced(repo, rows[: len(rows) // 2])
        return self._do(fault, lambda: self._backend.delete_unreferenced(repo, rows))

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        fault = self._next("scan_rows")
        if fault is Fault.BETWEEN:
            rows = list(self._backend.scan_rows(repo, kinds, part))
            yield from rows[: len(rows) // 2]
        yield from self._do(fault, lambda: self._backend.scan_rows(repo, kinds, part))

    def erase(self, repo: str) -> None:
        self._do(self._next("erase"), lambda: self._backend.erase(repo))

    def close(self) -> None:
        self._backend.close()

    def _apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied:
        fault = self._next("apply")
        if fault is Fault.BETWEEN:
            # Only rows, as an `apply` that is not atomic may leave them. They include unique
            # rows, so a caller that retries with the same ones finds them taken.
            self._backend.insert_rows(repo, rows)

        def apply() -> Applied:
            before = self._ref(repo, swap)
            applied = self._applying.apply(repo, rows, swap, log)
            if applied.swapped:
                self._older[repo][swap.name] = before
            return applied

        applied = self._do(fault, apply)
        # The second attempt finds the unique rows of the first, so none of them is new.
        return Applied(False) if fault is Fault.FALSE_AFTER and applied.swapped else applied

    def _try_apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied | None:
        fault = self._next("try_apply")
        if fault is Fault.WOULD_WAIT:
            return None

        def try_apply() -> Applied | None:
            before = self._ref(repo, swap)
            applied = self._quick.try_apply(repo, rows, swap, log)
            if applied is not None and applied.swapped:
                self._older[repo][swap.name] = before
            return applied

        return self._do(fault, try_apply)

    def _sync(self) -> None:
        self._do(self._next("sync"), self._quick.sync)

    def _append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        fault = self._next("append_log")
        if fault is Fault.BETWEEN:
            self._logging.append_log(repo, rows[: len(rows) // 2])
        self._do(fault, lambda: self._logging.append_log(repo, rows))

    def _read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        fault = self._next("read_log")
        return self._do(fault, lambda: self._logging.read_log(repo, before, limit))

    def _swap(self, repo: str, swap: RefSwap) -> bool:
        before = self._ref(repo, swap)
        swapped = self._backend.swap_ref(repo, swap)
        if swapped:
            self._older[repo][swap.name] = before
        return swapped

    def _ref(self, repo: str, swap: RefSwap) -> Ref | None:
        return self._backend.read_refs(repo, [swap.name]).get(swap.name)

    def _next(self, method: str) -> Fault | None:
        with self._lock:
            self._calls[method] += 1
            call = self._calls[method]
            fault = self.plan.fault(method, call)
            if fault is not None:
                self.injected.append((method, call, fault))
            return fault

    def _do(self, fault: Fault | None, work: Callable[[], T]) -> T:
        if fault in (Fault.BEFORE, Fault.BETWEEN):
            raise InjectedFault(fault.value)
        if fault is Fault.DELAY:
            self._sleep(self._delay_seconds)
        done = work()
        if fault is Fault.AFTER:
            raise InjectedFault(fault.value)
        return done


class TogetherBackend(FaultyBackend):
    """Creates and drops references in one step, and in several only if that step does not fit."""

    def apply_all(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow] = ()
    ) -> bool:
        assert isinstance(self._backend, SwapsTogether)
        swapping, fault = self._backend, self._next("apply_all")

        def apply_all() -> bool:
            before = self._before(repo, swaps)
            is_applied = swapping.apply_all(repo, rows, swaps, log)
            if is_applied:
                self._older[repo].update(before)
            return is_applied

        return self._do(fault, apply_all) and fault is not Fault.FALSE_AFTER

    def _before(self, repo: str, swaps: Sequence[RefSwap]) -> dict[str, Ref | None]:
        names = [swap.name for swap in swaps]
        refs = self._backend.read_refs(repo, names)
        return {name: refs.get(name) for name in names}


class QuickTogetherBackend(TogetherBackend):
    """Does the same without waiting, too."""

    def try_apply_all(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow] = ()
    ) -> bool | None:
        assert isinstance(self._backend, QuickSwapsTogether)
        swapping, fault = self._backend, self._next("try_apply_all")
        if fault is Fault.WOULD_WAIT:
            return None

        def try_apply_all() -> bool | None:
            before = self._before(repo, swaps)
            is_applied = swapping.try_apply_all(repo, rows, swaps, log)
            if is_applied:
                self._older[repo].update(before)
            return is_applied

        return self._do(fault, try_apply_all)

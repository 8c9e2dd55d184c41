"""The request for a purge, and the report about what it found, removed and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from morag.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

Reason = Literal["reachable", "young", "undated", "needed", "unknown", "referenced"]

REASONS: Final[dict[Reason, str]] = {
    "reachable": "a reference leads to it, or did so recently",
    "young": "written within the grace period",
    "undated": "its time is not known, because an old Nessie wrote it",
    "needed": "needed by one that stays for another reason",
    "unknown": "of a kind that is not understood",
    "referenced": "written again during the purge",
}
"""Why objects stay."""

KIND_NAMES: Final = {
    "c": "COMMIT",
    "I": "INDEX_SEGMENTS",
    "i": "INDEX",
    "r": "REF",
    "s": "STRING",
    "v": "VALUE",
    "t": "TAG",
    "u": "UNIQUE",
}
"""The kinds that a purge understands, in the order of their removal."""

DAY_SECONDS: Final = 86_400.0


class PurgeRequest(Struct, frozen=True, kw_only=True):
    """`grace_seconds`: objects that were written later than this long before the start stay.

    `settle_seconds`: after the last removal, wait this long for requests that began before it, then
    look once more for what became reachable.
    """

    dry_run: bool = True
    grace_seconds: float = DAY_SECONDS
    settle_seconds: float = 10.0
    rows_per_second: float | None = None
    include_undated: bool = False
    rows_at_once: int = 1000

    def check(self) -> None:
        if not 0 <= self.grace_seconds < float("inf"):
            raise BadRequest("The grace period must not be negative")
        if not 0 <= self.settle_seconds < float("inf"):
            raise BadRequest("The time to settle must not be negative")
        if self.rows_per_second is not None and not 0 < self.rows_per_second < float("inf"):
            raise BadRequest("The rate must be more than 0 rows per second")
        if self.rows_at_once < 1:
            raise BadRequest("A batch must have at least one row")


class Count(Struct, frozen=True):
    """Rows of one kind."""

    kind: str
    rows: int
    size_bytes: int


class Stay(Struct, frozen=True):
    """Rows of one kind that stay for one reason."""

    kind: str
    reason: Reason
    rows: int
    size_bytes: int


class PurgeReport(Struct, frozen=True):
    """`removed` is what a dry run would remove. `put_back` were deleted and became reachable."""

    dry_run: bool
    removed: tuple[Count, ...]
    stays: tuple[Stay, ...]
    put_back: int = 0

    @classmethod
    def of(
        cls, sums: Iterable[tuple[str, str, int, int]], dry_run: bool, put_back: int
    ) -> PurgeReport:
        """From kind, reason, number and bytes of rows."""
        removed, stays = [], []
        for kind, reason, rows, size_bytes in sorted(sums, key=_in_order):
            name = KIND_NAMES.get(kind, kind)
            if reason == "removed":
                removed.append(Count(name, rows, size_bytes))
            elif reason in REASONS:  # Otherwise another process deleted them.
                stays.append(Stay(name, reason, rows, size_bytes))
        return cls(dry_run, tuple(removed), tuple(stays), put_back)

    @property
    def removed_rows(self) -> int:
        return sum(count.rows for count in self.removed)

    @property
    def removed_bytes(self) -> int:
        return sum(count.size_bytes for count in self.removed)


def total(stays: Iterable[Stay], reason: Reason) -> int:
    return sum(stay.rows for stay in stays if stay.reason == reason)


def _in_order(sums: tuple[str, str, int, int]) -> tuple[int, str, str]:
    kind, reason, _, _ = sums
    return list(KIND_NAMES).index(kind) if kind in KIND_NAMES else 99, kind, reason

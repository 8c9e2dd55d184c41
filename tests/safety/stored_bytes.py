"""A backend that keeps everything as the bytes an engine stores, so that tests can damage them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.backend.base import WHOLE, LogRow, ObjId, Row
from morag.format.refs import decode_ref, encode_ref
from morag.format.rows import decode_row, encode_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.backend.base import Ref, RefSwap, Slice


class StoredBytes:
    """One repository in three dicts, in the form that RocksDB holds."""

    def __init__(self) -> None:
        self.refs: dict[str, bytes] = {}
        self.rows: dict[ObjId, bytes] = {}
        self.log: dict[bytes, bytes] = {}

    def copy(self) -> StoredBytes:
        other = StoredBytes()
        other.refs, other.rows, other.log = dict(self.refs), dict(self.rows), dict(self.log)
        return other

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        found = {n: decode_ref(self.refs[n], n) for n in names if n in self.refs}
        return {name: ref for name, ref in found.items() if ref.name == name}

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        stored = self.refs.get(swap.name)
        if stored is None or swap.expected is None:
            if stored is not None or swap.expected is not None:
                return False
        elif decode_ref(stored, swap.name).identity != swap.expected.identity:
            return False
        if swap.new is None:
            self.refs.pop(swap.name, None)
        else:
            self.refs[swap.name] = encode_ref(swap.new)
        return True

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        return {id: decode_row(id, self.rows[id]) for id in ids if id in self.rows}

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        new = [row for row in rows if row.id not in self.rows]
        self.rows.update({row.id: encode_row(row) for row in new})
        return frozenset(row.id for row in new)

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        raise NotImplementedError("only custom objects are swapped, and no test here has any")

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        for id in ids:
            self.rows.pop(id, None)

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        raise NotImplementedError("only a purge needs it, and no test here purges")

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        for id, message in self.rows.items():
            row = decode_row(id, message)
            if not kinds or row.kind in kinds:
                yield row

    def erase(self, repo: str) -> None:
        self.refs, self.rows, self.log = {}, {}, {}

    def close(self) -> None:
        """Nothing to release."""

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        self.log.update({row.key: row.data for row in rows})

    def read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        keys = sorted(key for key in self.log if before is None or key < before)
        return [LogRow(key, self.log[key]) for key in keys[::-1][:limit]]

"""Calls to Bigtable, with retries where they are safe."""

from __future__ import annotations

import time
from random import uniform
from typing import TYPE_CHECKING, Final, TypeVar

from google.cloud.bigtable_v2.types import (
    CheckAndMutateRowRequest,
    MutateRowsRequest,
    ReadRowsRequest,
    RowRange,
    RowSet,
)

from morag.backend.bigtable.errors import ERRORS, error_of_status
from morag.errors import StoreThrottled, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from google.cloud.bigtable_v2 import BigtableClient
    from google.cloud.bigtable_v2.types import Mutation, ReadRowsResponse, RowFilter

    from morag.backend.bigtable.records import Cells

T = TypeVar("T")
_PAUSES_SECONDS: Final = (0.1, 0.6)


class BigtableCalls:
    """The reads and changes of the backend, on tables with their short names.

    Reads and repeatable writes are retried if Bigtable is unreachable or overloaded. A conditional
    write is sent once: a second attempt would fail because of the first.
    """

    def __init__(
        self,
        client: BigtableClient,
        tables: Mapping[str, str],
        *,
        app_profile: str,
        timeout_seconds: float,
        address: str,
    ) -> None:
        self._client, self._tables, self._address = client, tables, address
        self._app_profile, self._timeout_seconds = app_profile, timeout_seconds

    def read(self, table: str, keys: Iterable[bytes]) -> dict[bytes, Cells]:
        return self._read(table, RowSet(row_keys=sorted(set(keys))), 0)

    def read_range(self, table: str, low: bytes, end: bytes, limit: int) -> dict[bytes, Cells]:
        """The first rows from `low` up to `end`, in the order of their keys."""
        found = RowRange(start_key_closed=low, end_key_open=end)
        return self._read(table, RowSet(row_ranges=[found]), limit)

    def change_if(
        self,
        table: str,
        key: bytes,
        condition: RowFilter,
        *,
        then: Sequence[Mutation] = (),
        otherwise: Sequence[Mutation] = (),
    ) -> bool:
        """Whether the condition held; then `then` was applied, else `otherwise`."""
        request = CheckAndMutateRowRequest(
            table_name=self._tables[table],
            app_profile_id=self._app_profile,
            row_key=key,
            predicate_filter=condition,
            true_mutations=then,
            false_mutations=otherwise,
        )
        with ERRORS.translating(self._address):
            answer = self._client.check_and_mutate_row(
                request, retry=None, timeout=self._timeout_seconds
            )
            return bool(answer.predicate_matched)

    def change(self, table: str, changes: Mapping[bytes, Sequence[Mutation]]) -> None:
        """Change many rows without a condition."""
        request = MutateRowsRequest(
            table_name=self._tables[table],
            app_profile_id=self._app_profile,
            entries=[
                MutateRowsRequest.Entry(row_key=key, mutations=mutations)
                for key, mutations in changes.items()
            ],
        )

        def change() -> None:
            for answer in self._client.mutate_rows(
                request, retry=None, timeout=self._timeout_seconds
            ):
                for entry in answer.entries:
                    if entry.status.code:
                        raise error_of_status(entry.status.code, entry.status.message)

        if changes:
            self._retrying(change)

    def close(self) -> None:
        self._client.transport.close()  # type: ignore[no-untyped-call]

    def _read(self, table: str, rows: RowSet, limit: int) -> dict[bytes, Cells]:
        request = ReadRowsRequest(
            table_name=self._tables[table],
            app_profile_id=self._app_profile,
            rows=rows,
            rows_limit=limit,
        )
        return self._retrying(
            lambda: dict(
                merged(self._client.read_rows(request, retry=None, timeout=self._timeout_seconds))
            )
        )

    def _retrying(self, call: Callable[[], T]) -> T:
        for pause in _PAUSES_SECONDS:
            try:
                with ERRORS.translating(self._address):
                    return call()
            except (StoreUnreachable, StoreThrottled):
                time.sleep(uniform(pause / 2, pause))
        with ERRORS.translating(self._address):
            return call()


def merged(answers: Iterable[ReadRowsResponse]) -> Iterator[tuple[bytes, Cells]]:
    """The rows of an answer, whose chunks hold one cell or a part of one."""
    key, column, value = b"", b"", b""
    cells: Cells = {}
    for answer in answers:
        for chunk in answer.chunks:
            if chunk.reset_row:
                key, value, cells = b"", b"", {}
                continue
            key = chunk.row_key or key
            if chunk.qualifier is not None:
                column = chunk.qualifier
            value += chunk.value
            if not chunk.value_size:  # Otherwise the cell continues in the next chunk.
                cells.setdefault(column, value)  # If there are several, the newest comes first.
                value = b""
            if chunk.commit_row:
                yield key, cells
                key, column, value, cells = b"", b"", b"", {}

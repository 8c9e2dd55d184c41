"""Calls to Bigtable, and what comes back."""

from __future__ import annotations

import time
from contextlib import contextmanager
from random import uniform
from typing import TYPE_CHECKING, Final, TypeVar

from google.cloud.bigtable_v2.types import (
    CheckAndMutateRowRequest,
    MutateRowsRequest,
    ReadRowsRequest,
    RowRange,
    RowSet,
)

from morag.backend.bigtable_errors import ERRORS, of_status, told
from morag.errors import StoreThrottled, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from google.cloud.bigtable_v2 import BigtableClient
    from google.cloud.bigtable_v2.types import Mutation, ReadRowsResponse, RowFilter

    from morag.backend.bigtable_cells import Cells

T = TypeVar("T")
_PAUSES_SECONDS: Final = (0.1, 0.6)


class BigtableCalls:
    """What a backend asks of Bigtable. Tables go by their short names.

    What reads, or writes the same when done twice, is tried again if Bigtable is out of reach or
    refuses because of load. What is conditional is sent once: the second try would be denied
    because of the first.
    """

    def __init__(
        self,
        client: BigtableClient,
        tables: Mapping[str, str],
        *,
        app_profile: str,
        timeout_seconds: float,
        place: str,
    ) -> None:
        self._client, self._tables, self._place = client, tables, place
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
        """Whether the condition held, before one or the other was done."""
        request = CheckAndMutateRowRequest(
            table_name=self._tables[table],
            app_profile_id=self._app_profile,
            row_key=key,
            predicate_filter=condition,
            true_mutations=then,
            false_mutations=otherwise,
        )
        with self._telling():
            answer = self._client.check_and_mutate_row(
                request, retry=None, timeout=self._timeout_seconds
            )
            return bool(answer.predicate_matched)

    def change(self, table: str, changes: Mapping[bytes, Sequence[Mutation]]) -> None:
        """Change many rows, whatever they hold."""
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
                        raise of_status(entry.status.code, entry.status.message)

        if changes:
            self._again(change)

    def close(self) -> None:
        self._client.transport.close()  # type: ignore[no-untyped-call]

    def _read(self, table: str, rows: RowSet, limit: int) -> dict[bytes, Cells]:
        request = ReadRowsRequest(
            table_name=self._tables[table],
            app_profile_id=self._app_profile,
            rows=rows,
            rows_limit=limit,
        )
        return self._again(
            lambda: dict(
                merged(self._client.read_rows(request, retry=None, timeout=self._timeout_seconds))
            )
        )

    def _again(self, call: Callable[[], T]) -> T:
        for pause in _PAUSES_SECONDS:
            try:
                with self._telling():
                    return call()
            except (StoreUnreachable, StoreThrottled):
                time.sleep(uniform(pause / 2, pause))
        with self._telling():
            return call()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except ERRORS as error:
            raise told(error, self._place) from error


def merged(answers: Iterable[ReadRowsResponse]) -> Iterator[tuple[bytes, Cells]]:
    """The rows of an answer, which comes in pieces: several cells at once, or a part of one."""
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
            if not chunk.value_size:  # Else there is more of this cell to come.
                cells.setdefault(column, value)  # The newest comes first, if there are several.
                value = b""
            if chunk.commit_row:
                yield key, cells
                key, column, value, cells = b"", b"", b"", {}

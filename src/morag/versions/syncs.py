"""Syncs: batches that were written wait for one, and one serves all that wait when it begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from morag.versions.tickets import Spawn

Synced: TypeAlias = Callable[[Exception | None], None]
"""Gets the failure of the sync, or None."""


class Syncs:
    """Calls `sync`, which waits for the disk, in one thread at a time."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._waiting: list[tuple[Spawn, Synced]] = []
        self._is_running = False
        self._lock = Lock()

    def then(self, spawn: Spawn, synced: Synced) -> None:
        """Call `synced`, as brief work, after a sync that begins now or later."""
        with self._lock:
            self._waiting.append((spawn, synced))
            is_first, self._is_running = not self._is_running, True
        if is_first:
            spawn(self._run)

    def _run(self) -> None:
        while waiting := self._take():
            failure: Exception | None = None
            try:
                self._sync()
            except Exception as error:  # noqa: BLE001 - Every batch that waits gets it.
                failure = error
            spawn, _ = waiting[0]
            spawn(partial(_call, [synced for _, synced in waiting], failure), brief=True)

    def _take(self) -> list[tuple[Spawn, Synced]]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._is_running = bool(waiting)
            return waiting


def _call(all_synced: Sequence[Synced], failure: Exception | None) -> None:
    for synced in all_synced:
        synced(failure)

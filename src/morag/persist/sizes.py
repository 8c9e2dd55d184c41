"""Sizes that fit the engine below: no object outgrows what it can store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from morag.backend.base import LimitsRows

if TYPE_CHECKING:
    from morag.backend.base import Backend
    from morag.config import Settings


def fitted(settings: Settings, backend: Backend) -> Settings:
    """The settings, with every size cut to what the backend takes.

    Half of it goes to an index: a commit has more inside than that, and a stripe may grow to twice
    the size that it aims at before it is cut.
    """
    if not isinstance(backend, LimitsRows):
        return settings
    most = backend.row_bytes
    return replace(
        settings,
        max_object_bytes=min(settings.max_object_bytes, most),
        max_incremental_index_bytes=min(settings.max_incremental_index_bytes, most // 2),
        max_index_segment_bytes=min(settings.max_index_segment_bytes, most // 2),
    )

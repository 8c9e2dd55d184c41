"""Fits the settings to the limits of a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from morag.backend.base import LimitsRows

if TYPE_CHECKING:
    from morag.backend.base import Backend
    from morag.config import Settings


def fitted_settings(settings: Settings, backend: Backend) -> Settings:
    """The settings, with every size limited to what the backend accepts.

    An index gets half of the limit: a commit has more in it than its index, and a stripe may grow
    to twice its target size before it is cut.
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

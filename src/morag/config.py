"""Every setting, its default and its meaning, in one frozen struct."""

from __future__ import annotations

from msgspec import Struct


class Settings(Struct, frozen=True, kw_only=True):
    """Sizes are a writer's choice, not format: servers with different settings share a store.

    The index sizes are chosen for many small commits: a commit rewrites its incremental index, so
    a small one keeps commits small; a spill rewrites a stripe per touched key and the directory of
    stripes, so stripes grow with the square root of the repository.
    """

    repository_id: str = ""
    default_branch: str = "main"

    namespace_validation: bool = True

    parents_per_commit: int = 20
    max_incremental_index_bytes: int = 6 * 1024
    min_index_segment_bytes: int = 2 * 1024
    max_index_segment_bytes: int = 64 * 1024
    max_inlined_stripes: int = 4
    max_object_bytes: int = 16 * 1024 * 1024

    cache_bytes: int = 256 * 1024 * 1024

    previous_heads_count: int = 20
    previous_heads_seconds: int = 300

    commit_timeout_ms: int = 5_000
    commit_retries: int | None = None
    retry_sleep_lower_ms: int = 5
    retry_sleep_upper_ms: int = 25
    retry_sleep_max_ms: int = 250

    lane_batch: int = 256
    """How many waiting commits of one branch are written at once, at the most."""

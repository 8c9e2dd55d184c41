"""The facts about a repository that an administrator asks for first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from morag.backend.urls import StoreUrl
    from morag.versions.repository import Repository


class RepositoryInfo(Struct, frozen=True):
    """Times are in ISO 8601. Passwords in the store's URL are masked."""

    store: str
    store_type: str
    repository_id: str
    created: str
    oldest_possible_commit: str
    imported: str | None
    default_branch: str
    head: str
    commits: int
    """The length of the default branch's history, with commits that were cut off."""
    references: int
    parents_per_commit: int
    max_incremental_index_bytes: int
    max_index_segment_bytes: int


def repository_info(url: StoreUrl, repository: Repository) -> RepositoryInfo:
    description, settings = repository.describe(), repository.settings
    found = repository.references.get(repository.default_branch)
    metadata = repository.references.metadata(found)
    return RepositoryInfo(
        store=str(url),
        store_type=url.scheme,
        repository_id=settings.repository_id,
        created=description.repository_created_time,
        oldest_possible_commit=description.oldest_possible_commit_time,
        imported=description.repository_imported_time,
        default_branch=repository.default_branch,
        head=found.hash,
        commits=0 if metadata is None else metadata.total_commits,
        references=sum(1 for _ in repository.references.list()),
        parents_per_commit=settings.parents_per_commit,
        max_incremental_index_bytes=settings.max_incremental_index_bytes,
        max_index_segment_bytes=settings.max_index_segment_bytes,
    )

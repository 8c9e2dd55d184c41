"""The interface that a repository and a client of a server have in common.

`versions.repository.Repository` reads and writes a store, `client.client.Client` calls a server.
Code that takes a `Catalog` works with either. Each of them has further methods of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from morag.model.entry_columns import ALL, WHOLE
from morag.model.merging import MergeBehavior

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from morag.model.configs import RepositoryConfig
    from morag.model.content import Content
    from morag.model.entry_columns import Columns, EntryFilter, KeySpan
    from morag.model.keys import ContentKey
    from morag.model.merging import MergeKey, MergeResult
    from morag.model.meta import CommitMeta
    from morag.model.names import ReferenceKind
    from morag.model.operations import Operation
    from morag.model.references import Reference, ReferenceHistory, ReferenceMetadata, RefLogEntry
    from morag.model.refspecs import RefSpec
    from morag.model.results import CommitResult, Diff, Entry, LogEntry, LogExtent, Page

T_co = TypeVar("T_co", covariant=True)


class Catalog(Protocol):
    """Branches, tags and commits. Safe to use from many threads.

    `references`, `contents` and `history` read, and `references` also creates, moves and deletes;
    `commit`, `merge` and `transplant` change contents on a branch. An argument `at` names a commit,
    such as `main`, `main~2` or `@HASH`; an `expected` hash is by default the head.
    """

    @property
    def references(self) -> References: ...

    @property
    def contents(self) -> Contents: ...

    @property
    def history(self) -> History: ...

    @property
    def default_branch(self) -> str: ...

    def resolve(self, at: str | RefSpec) -> ResolvedRef:
        """The commit that a text such as `main~2` names now."""
        ...

    def repository_config(self) -> RepositoryConfig | None:
        """The configuration of garbage collection; None if it was never set."""
        ...

    def set_repository_config(self, config: RepositoryConfig) -> RepositoryConfig | None:
        """Replace the whole configuration and return the previous one."""
        ...

    def commit(
        self,
        branch: str,
        operations: Sequence[Operation],
        meta: CommitMeta | str,
        *,
        expected: str | None = None,
    ) -> CommitResult:
        """Change keys on a branch, all or nothing."""
        ...

    def merge(
        self,
        source: str | RefSpec,
        into: str,
        *,
        meta: CommitMeta | None = None,
        expected: str | None = None,
        keys: Sequence[MergeKey] = (),
        default: MergeBehavior = MergeBehavior.NORMAL,
        dry_run: bool = False,
        conflicts_as_result: bool = False,
    ) -> MergeResult:
        """Apply everything that `source` changed since its common ancestor with the branch."""
        ...

    def transplant(
        self,
        hashes: Sequence[str],
        into: str,
        *,
        source: str = "DETACHED",
        meta: CommitMeta | None = None,
        expected: str | None = None,
        keys: Sequence[MergeKey] = (),
        default: MergeBehavior = MergeBehavior.NORMAL,
        dry_run: bool = False,
        conflicts_as_result: bool = False,
    ) -> MergeResult:
        """Apply consecutive commits, oldest first, to a branch."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Catalog: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class References(Protocol):
    """Branches and tags, by their short names."""

    def get(self, name: str) -> Reference: ...

    def list(
        self, kind: ReferenceKind | None = None, *, prefix: str = "", token: str | None = None
    ) -> Listing[Reference]:
        """All branches by name, then all tags by name. A `prefix` needs a `kind`."""
        ...

    def list_with_metadata(
        self, kind: ReferenceKind | None = None, *, prefix: str = "", token: str | None = None
    ) -> Listing[tuple[Reference, ReferenceMetadata | None]]:
        """The same listing with metadata; None for a reference without a commit."""
        ...

    def metadata(self, name: str, /) -> ReferenceMetadata | None:
        """The head, and the distance from the default branch; None while there is no commit."""
        ...

    def history(self, name: str, scan_commits: int = 0) -> ReferenceHistory:
        """Recent heads, each checked for consistency, and `scan_commits` more commits below."""
        ...

    def moves(self, limit: int = 100, token: str | None = None) -> Page[RefLogEntry]:
        """The ref-log, newest first. A server other than Morag's raises `NotOffered`."""
        ...

    def create_branch(self, name: str, at: str | RefSpec | None) -> Reference:
        """A new branch at a commit; None starts an empty history."""
        ...

    def create_tag(self, name: str, at: str | RefSpec) -> Reference: ...

    def assign(self, name: str, to: str | RefSpec, expected: str | None = None) -> Reference:
        """Move a reference to another commit, if it is at the expected hash."""
        ...

    def delete(self, name: str, expected: str | None = None) -> Reference:
        """Drop a reference that is at the expected hash. Its commits stay."""
        ...


class Contents(Protocol):
    """Contents and their keys, as of any commit. Listings are in key order."""

    def get(self, at: str | RefSpec, key: ContentKey) -> Content:
        """The content of one key. Raises `ContentNotFound` if there is none."""
        ...

    def get_all(self, at: str | RefSpec, keys: Sequence[ContentKey]) -> dict[ContentKey, Content]:
        """The contents of those keys that exist, in the requested order."""
        ...

    def keys(
        self,
        at: str | RefSpec,
        *,
        min_key: ContentKey | None = None,
        max_key: ContentKey | None = None,
        prefix: ContentKey | None = None,
        token: str | None = None,
    ) -> Listing[ContentKey]: ...

    def entries(
        self,
        at: str | RefSpec,
        *,
        min_key: ContentKey | None = None,
        max_key: ContentKey | None = None,
        prefix: ContentKey | None = None,
        keys: Sequence[ContentKey] = (),
        with_content: bool = False,
        token: str | None = None,
    ) -> Listing[Entry]: ...

    def columns(
        self,
        at: str | RefSpec,
        *,
        span: KeySpan = WHOLE,
        selected: EntryFilter = ALL,
        with_content: bool = False,
    ) -> Iterator[Columns]:
        """Entries in columns of some thousands, the fastest way to read many of them."""
        ...

    def splits(self, at: str | RefSpec, parts: int) -> tuple[ContentKey, ...]:
        """Keys that cut a commit into at most `parts` ranges of about the same size.

        A server other than Morag's raises `NotOffered`.
        """
        ...

    def diff(
        self,
        before: str | RefSpec,
        after: str | RefSpec,
        *,
        min_key: ContentKey | None = None,
        max_key: ContentKey | None = None,
        prefix: ContentKey | None = None,
        keys: Sequence[ContentKey] = (),
        token: str | None = None,
    ) -> Listing[Diff]:
        """The differences between two commits."""
        ...


class History(Protocol):
    """Commits along their first parents."""

    def log(
        self,
        at: str | RefSpec,
        *,
        until: str | None = None,
        with_operations: bool = False,
        token: str | None = None,
    ) -> Listing[LogEntry]:
        """The commit and its first parents, newest first, down to the hash `until`, inclusive."""
        ...

    def hashes(
        self, at: str | RefSpec, *, until: str | None = None, token: str | None = None
    ) -> Listing[str]:
        """The hashes of `log`."""
        ...

    def extent(self, at: str | RefSpec) -> LogExtent:
        """The commit where the log starts, and the number of its commits where that is cheap."""
        ...


class Listing(Protocol[T_co]):
    """Items that are read as they are needed, from the start each time."""

    def __iter__(self) -> Iterator[T_co]: ...

    def page(self, limit: int) -> Page[T_co]:
        """Up to `limit` items. `page.token` starts the listing of the following ones."""
        ...


class ResolvedRef(Protocol):
    """A commit on the server or in the store; `name` is None if only its hash was given."""

    @property
    def name(self) -> str | None: ...

    @property
    def hash(self) -> str: ...

"""Options and results of merges and transplants."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field

from morag.errors import BadRequest
from morag.model.conflicts import Conflict
from morag.model.content import Content
from morag.model.keys import ContentKey, check_key_type
from morag.model.meta import CommitMeta


class MergeBehavior(Enum):
    NORMAL = "NORMAL"
    """A key that both sides changed is a conflict."""
    FORCE = "FORCE"
    """The source wins."""
    DROP = "DROP"
    """The source's change is left out."""


class MergeKey(Struct, frozen=True, rename="camel"):
    """The behavior for one key.

    With `resolved_content` the merge stores that instead of the source's content, provided that the
    target still holds `expected_target_content`. A key that cannot exist is accepted, as long as
    its elements are texts.
    """

    key: ContentKey
    merge_behavior: MergeBehavior
    expected_target_content: Content | None = None
    resolved_content: Content | None = None

    def __post_init__(self) -> None:
        check_key_type(self.key)
        if not all(isinstance(element, str) for element in self.key.elements):
            raise BadRequest("Content key must consist of texts")


class MergeOptions(Struct, frozen=True, kw_only=True):
    """How a merge or transplant treats metadata, keys and conflicts."""

    meta: CommitMeta | None = None
    keys: tuple[MergeKey, ...] = ()
    default: MergeBehavior = MergeBehavior.NORMAL
    squash: bool = True
    dry_run: bool = False
    conflicts_as_result: bool = False


class MergedKey(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The result of a merge for one key."""

    key: ContentKey
    merge_behavior: MergeBehavior = field(default_factory=lambda: MergeBehavior.NORMAL)
    """Sent even if it is the default."""
    conflict: Conflict | None = None


class MergeResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """`resultant_target_hash` is null after conflicts, and for a dry run that would apply."""

    was_applied: bool
    was_successful: bool
    resultant_target_hash: str | None = None
    common_ancestor: str | None = None
    target_branch: str
    effective_target_hash: str
    expected_hash: str | None = None
    details: tuple[MergedKey, ...] = ()

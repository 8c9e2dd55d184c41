"""Chooses the references to export or to pull: those whose names match patterns."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from morag.errors import BadRequest
from morag.logic.reference_reader import short_name
from morag.model.names import split_full_name

if TYPE_CHECKING:
    from collections.abc import Sequence


def chosen_names(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The full names that match a pattern, or whose short names do; all without patterns."""
    if not patterns:
        return list(names)
    chosen = [
        name
        for name in names
        if any(
            fnmatchcase(each, pattern) for pattern in patterns for each in (short_name(name), name)
        )
    ]
    if not chosen:
        raise BadRequest(f"No reference matches {', '.join(map(repr, patterns))}")
    return chosen


def default_branch_among(names: Sequence[str], default: str) -> str:
    """The default branch, or the first branch if it was not chosen."""
    splits = [split_full_name(name) or ("", name) for name in names]
    branches = [name for kind, name in splits if kind == "BRANCH"]
    if default in branches:
        return default
    if not branches:
        raise BadRequest("No branch was chosen, and a repository needs one; choose one more")
    return branches[0]

"""`GenerateOptions`: what a generated history looks like."""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import BadRequest
from morag.generate.random_contents import CONTENT_TYPES
from morag.model.key_patterns import KeyPattern
from morag.model.meta import CommitMeta

if TYPE_CHECKING:
    from random import Random

_RUN: Final = re.compile(r"[A-Za-z0-9_-]{1,50}")
_MOST_PUTS: Final = 100_000


class GenerateOptions(Struct, frozen=True, kw_only=True):
    """The options that `morag generate` and `morag spark generate` share.

    `run` is part of the names of branches and keys, so that two runs do not meet. Everything random
    follows from `seed`.
    """

    seed: int
    run: str
    commits: int = 100
    branches: int = 1
    """The default branch counts as one of them."""
    tag_probability: float = 0.0
    """How likely a commit is tagged."""
    default_branch: str | None = None
    tables: int = 1
    """The number of keys."""
    type: str = "ICEBERG_TABLE"
    key_pattern: str | None = None
    puts_per_commit: int = 1
    author: str = ""
    message: str | None = None

    def __post_init__(self) -> None:
        for name, value in (
            ("commits", self.commits),
            ("branches", self.branches),
            ("tables", self.tables),
            ("puts per commit", self.puts_per_commit),
        ):
            if value < 1:
                raise BadRequest(f"The number of {name} must be at least 1, not {value}")
        if self.puts_per_commit > _MOST_PUTS:
            raise BadRequest(f"A commit can have at most {_MOST_PUTS} puts")
        if not (isfinite(self.tag_probability) and 0 <= self.tag_probability <= 1):
            raise BadRequest(
                f"The tag probability must be from 0 to 1, not {self.tag_probability:g}"
            )
        if self.type not in CONTENT_TYPES:
            known = ", ".join(CONTENT_TYPES)
            raise BadRequest(f"Contents of type {self.type!r} are not generated; known: {known}")
        if not _RUN.fullmatch(self.run):
            raise BadRequest(f"The name of a run has letters, digits, _ and -, not {self.run!r}")
        if self.key_pattern is not None:
            KeyPattern.parse(self.key_pattern)

    def new_branches(self) -> list[str]:
        """The names of the branches beside the default branch."""
        return [f"branch-{self.run}_{number}" for number in range(self.branches - 1)]

    def meta_of(self, number: int, branch: str) -> CommitMeta:
        message = self.message
        if message is None:
            message = f"Commit #{number} of {self.commits} on {branch}"
        return CommitMeta(message=message, authors=(self.author,) if self.author else ())

    def tag_of(self, random: Random) -> str | None:
        """The name of the tag for a commit, if it gets one."""
        if random.random() >= self.tag_probability:
            return None
        return f"new-tag-{random.getrandbits(63)}"

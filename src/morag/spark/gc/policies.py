"""Cut-off policies: which commits of a reference keep their files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import BadRequest
from morag.model.durations import parse_duration
from morag.model.times import parse_instant
from morag.spark.errors import CannotRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from morag.model.configs import GarbageCollectorConfig

EVERYTHING: Final = "NONE"


class Cutoff(Struct, frozen=True):
    """The newest so many commits are live, or those since a moment, or all. The head always is."""

    commits: int | None = None
    since_nanos: int | None = None

    @classmethod
    def parse(cls, policy: str, now_nanos: int) -> Cutoff:
        """Read `NONE`, a number of commits, a duration or a moment."""
        text = policy.strip()
        if text.upper() == EVERYTHING:
            return cls()
        if text.isascii() and text.isdigit():
            return cls(commits=int(text))
        if text.upper().startswith("P"):
            ago = parse_duration(text)
            if ago < 0:
                raise BadRequest(f"'{text}' is in the future")
            return cls(since_nanos=now_nanos - ago)
        since = parse_instant(text)
        if since > now_nanos:
            raise BadRequest(f"'{text}' is in the future")
        return cls(since_nanos=since)


class Policies(Struct, frozen=True):
    """A policy per pattern of names, of which the first that fits counts, and one for the rest."""

    default: str = EVERYTHING
    per_name: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls,
        config: GarbageCollectorConfig | None,
        default: str | None,
        per_name: Mapping[str, str],
    ) -> Policies:
        """What was asked for goes before what the repository's configuration says.

        A default that was asked for is one for all names that were not, whatever is configured.
        """
        asked = tuple(per_name.items())
        if default is not None or config is None:
            return cls(EVERYTHING if default is None else default, asked)
        configured = config.per_ref_cutoff_policies or ()
        return cls(
            config.default_cutoff_policy or EVERYTHING,
            (*asked, *((each.reference_name_pattern, each.policy) for each in configured)),
        )

    def cutoff(self, name: str, now_nanos: int) -> Cutoff:
        for pattern, policy in self.per_name:
            if _matches(pattern, name):
                return _parsed(policy, now_nanos, f" for references like '{pattern}'")
        return _parsed(self.default, now_nanos, "")

    def check(self, now_nanos: int) -> None:
        """Refuse what cannot be read, be it for a reference or not."""
        for pattern, policy in self.per_name:
            _matches(pattern, "")
            _parsed(policy, now_nanos, f" for references like '{pattern}'")
        _parsed(self.default, now_nanos, "")


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error as error:
        raise CannotRun(
            f"The cut-off policies have the pattern '{pattern}', which is not a regular "
            f"expression: {error}; correct it, also in the repository's configuration"
        ) from None


def _parsed(policy: str, now_nanos: int, where: str) -> Cutoff:
    try:
        return Cutoff.parse(policy, now_nanos)
    except BadRequest:
        raise CannotRun(
            f"Cut-off policy '{policy}'{where} must be NONE, a number of commits, a duration such "
            "as P30D or PT12H, or a time in the past such as 2011-12-03T10:15:30Z; correct it, "
            "also in the repository's configuration"
        ) from None

"""The plan of a run: the user's request, recorded when the run starts and used by all its steps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from morag.errors import BadRequest
from morag.model.durations import parse_duration
from morag.model.times import SECOND_NANOS, instant_text, parse_instant
from morag.spark.errors import CannotRun
from morag.spark.locations import Location, listing_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from morag.model.configs import GarbageCollectorConfig
    from morag.spark.opening import Origin
    from morag.versions.world import World

Snapshots: TypeAlias = Literal["all", "current"]

RUN_ID: Final = r"\d{8}T\d{6}Z-[0-9a-f]{8}"
QUARANTINE: Final = ".morag-quarantine"
EVERYTHING: Final = "NONE"

_GRACE: Final = "P3D"


class Cutoff(Struct, frozen=True):
    """The newest `commits` are live, or those since a time, or all. The head always is."""

    commits: int | None = None
    since_nanos: int | None = None

    @classmethod
    def parse(cls, policy: str, now_nanos: int) -> Cutoff:
        """Parse `NONE`, a number of commits, a duration or a time."""
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
    """Cut-off policies by patterns of reference names. The first match counts."""

    default: str = EVERYTHING
    per_name: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls,
        config: GarbageCollectorConfig | None,
        default: str | None,
        per_name: Mapping[str, str],
    ) -> Policies:
        """Combine the requested policies with the repository's configuration.

        Requested patterns come first. A requested default replaces the whole configuration.
        """
        requested = tuple(per_name.items())
        if default is not None or config is None:
            return cls(EVERYTHING if default is None else default, requested)
        configured = config.per_ref_cutoff_policies or ()
        return cls(
            config.default_cutoff_policy or EVERYTHING,
            (*requested, *((each.reference_name_pattern, each.policy) for each in configured)),
        )

    def cutoff(self, name: str, now_nanos: int) -> Cutoff:
        for pattern, policy in self.per_name:
            if _matches(pattern, name):
                return _parsed(policy, now_nanos, f" for references like '{pattern}'")
        return _parsed(self.default, now_nanos, "")

    def check(self, now_nanos: int) -> None:
        """Raise CannotRun if any policy or pattern cannot be parsed, even an unused one."""
        for pattern, policy in self.per_name:
            _matches(pattern, "")
            _parsed(policy, now_nanos, f" for references like '{pattern}'")
        _parsed(self.default, now_nanos, "")


class Plan(Struct, frozen=True, kw_only=True):
    """`now_nanos` is the time from which the ages of commits and files are counted.

    It holds no secret: neither the catalog's token nor the keys of S3.
    """

    id: str
    origin: str
    now_nanos: int
    policies: Policies
    grace_nanos: int
    snapshots: Snapshots
    dropped: bool
    locations: tuple[str, ...]
    ignore_missing: bool
    quarantine: str | None
    records: str

    @property
    def newest_micros(self) -> int:
        """Files that are younger are never removed."""
        return (self.now_nanos - self.grace_nanos) // 1000

    def quarantined(self, path: str) -> str:
        """The name of a file while it is in quarantine.

        On disk that is by default in its own directory, so that a move is a rename, whatever is
        mounted where. S3 does not rename, and has one quarantine per bucket. Listings skip both.
        """
        location = Location.of(path)
        top = self._requested_quarantine(location.scheme)
        if top is None and location.is_local:
            directory, _, name = path.rpartition("/")
            return f"{directory}/{QUARANTINE}/{self.id}/{name}"
        bucket = f"/{location.host}" if location.host else ""  # Buckets may share one quarantine.
        top = top or f"s3://{location.host}"
        return f"{top}/{QUARANTINE}/{self.id}{bucket}{location.path}"

    def _requested_quarantine(self, scheme: str) -> str | None:
        requested = self.quarantine
        if requested is None or Location.of(requested).scheme != scheme:
            return None
        return requested


def make_plan(
    origin: Origin,
    config: GarbageCollectorConfig | None,
    directory: str,
    world: World,
    *,
    cutoff: str | None,
    cutoffs: Mapping[str, str],
    grace: str | None,
    snapshots: Snapshots,
    dropped: bool,
    locations: Sequence[str],
    ignore_missing: bool,
    quarantine: str | None,
) -> Plan:
    """The plan for a request, or CannotRun if the request makes no sense."""
    check_request(cutoff, cutoffs, grace, snapshots, locations, quarantine, world)
    now = world.clock_nanos()
    policies = Policies.of(config, cutoff, cutoffs)
    policies.check(now)
    configured = None if config is None else config.new_files_grace_period
    return Plan(
        id=_run_id(now, world),
        origin=str(origin),
        now_nanos=now,
        policies=policies,
        grace_nanos=_parsed_grace(grace or configured or _GRACE),
        snapshots=snapshots,
        dropped=dropped,
        locations=tuple(locations),
        ignore_missing=ignore_missing,
        quarantine=None if quarantine is None else listing_prefix(quarantine),
        records=_records(directory),
    )


def check_request(
    cutoff: str | None,
    cutoffs: Mapping[str, str],
    grace: str | None,
    snapshots: Snapshots,
    locations: Sequence[str],
    quarantine: str | None,
    world: World,
) -> None:
    """Raise CannotRun for a request that no configuration of the repository makes sense of.

    Neither Spark nor the catalog is needed.
    """
    Policies.of(None, cutoff, cutoffs).check(world.clock_nanos())
    if grace is not None:
        _parsed_grace(grace)
    if snapshots not in ("all", "current"):
        raise CannotRun(f"The option 'snapshots' must be 'all' or 'current', not '{snapshots}'")
    for location in locations:
        if not Location.of(location).path.strip("/"):
            raise CannotRun(
                f"'{location}' is a whole disk or bucket: name the directories in it that hold "
                "nothing but files of this catalog"
            )
    if quarantine is not None:
        Location.of(quarantine)


def _run_id(now: int, world: World) -> str:
    """A name that sorts by time, and is valid on every file system."""
    time = instant_text(now // SECOND_NANOS * SECOND_NANOS).replace(":", "").replace("-", "")
    return f"{time}-{world.new_uuid().hex()[:8]}"


def _records(directory: str) -> str:
    try:
        return listing_prefix(directory)
    except CannotRun:
        return directory  # Spark writes to more kinds of stores than jobs list.


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error as error:
        raise CannotRun(
            f"The cut-off policies have the pattern '{pattern}', which is not a regular "
            f"expression: {error}; correct it, also in the repository's configuration"
        ) from None


def _parsed_grace(text: str) -> int:
    try:
        nanos = parse_duration(text)
    except BadRequest:
        raise CannotRun(
            f"The grace period '{text}' of new files is not a duration: write it like P3D or PT12H"
        ) from None
    if nanos < 0:
        raise CannotRun("The grace period of new files must not be negative")
    return nanos


def _parsed(policy: str, now_nanos: int, where: str) -> Cutoff:
    try:
        return Cutoff.parse(policy, now_nanos)
    except BadRequest:
        raise CannotRun(
            f"Cut-off policy '{policy}'{where} must be NONE, a number of commits, a duration such "
            "as P30D or PT12H, or a time in the past such as 2011-12-03T10:15:30Z; correct it, "
            "also in the repository's configuration"
        ) from None

"""What a run is to do, as it is recorded at its start: whoever resumes it goes by the same."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from morag.spark.gc.policies import Policies
from morag.spark.places import Place

Snapshots: TypeAlias = Literal["all", "current"]

RUN_ID: Final = r"\d{8}T\d{6}Z-[0-9a-f]{8}"
QUARANTINE: Final = ".morag-quarantine"


class Plan(Struct, frozen=True, kw_only=True):
    """`now_nanos` is the moment that ages are counted from, for commits as for files.

    No secret is in here: neither the catalog's token nor the keys of S3.
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
        """Files that are younger stay, whatever leads to them or not."""
        return (self.now_nanos - self.grace_nanos) // 1000

    def quarantined(self, path: str) -> str:
        """Where a file waits for its end, unless it was asked to be elsewhere.

        On disk that is beside itself: so to move it is to rename it, whatever is mounted where. S3
        does not rename, and has one place per bucket. Listings pass over both.
        """
        place = Place.of(path)
        top = self._asked(place.scheme)
        if top is None and place.is_local:
            directory, _, name = path.rpartition("/")
            return f"{directory}/{QUARANTINE}/{self.id}/{name}"
        bucket = f"/{place.host}" if place.host else ""  # Several may share one quarantine.
        top = top or f"s3://{place.host}"
        return f"{top}/{QUARANTINE}/{self.id}{bucket}{place.path}"

    def _asked(self, scheme: str) -> str | None:
        asked = self.quarantine
        return asked if asked is not None and Place.of(asked).scheme == scheme else None

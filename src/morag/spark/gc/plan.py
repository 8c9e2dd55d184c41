"""What a run is to do, as it is recorded at its start: whoever resumes it goes by the same."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from morag.spark.errors import CannotRun
from morag.spark.files import Place
from morag.spark.gc.policies import Policies

Snapshots: TypeAlias = Literal["all", "current"]

RUN_ID: Final = r"\d{8}T\d{6}Z-[0-9a-f]{8}"


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
        """Where a file waits for its end: on its own disk or in its own bucket, under its name."""
        place = Place.of(path)
        bucket = f"/{place.host}" if place.host else ""  # Several may share one quarantine.
        return f"{self._quarantine(place)}/.morag-quarantine/{self.id}{bucket}{place.path}"

    def _quarantine(self, place: Place) -> str:
        asked = self.quarantine
        if asked is not None and Place.of(asked).scheme == place.scheme:
            return asked
        if not place.is_local:
            return f"s3://{place.host}"
        if not self.records.startswith("file:"):
            raise CannotRun(
                "Files on disk cannot wait where the run is recorded: name a directory on disk as "
                "the quarantine"
            )
        return self.records

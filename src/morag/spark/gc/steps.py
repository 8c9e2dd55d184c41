"""The steps of a run: the name of each dataset on disk, and its schema.

Recorded runs have these names and columns, so neither may change: a run that an earlier version
recorded can be resumed, swept, undone and purged.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct


class Role(StrEnum):
    """The meaning of a row that a mark has found. Rows have the value, a plain string."""

    FILE = "FILE"
    DIRECTORY = "DIRECTORY"
    """The location of a table."""
    KEPT = "KEPT"
    """A directory whose files are all protected."""
    MISSING = "MISSING"
    """A metadata file that does not exist."""
    UNREADABLE = "UNREADABLE"
    """A metadata file that cannot be read."""
    ELSEWHERE = "ELSEWHERE"
    """A metadata file on a store that is neither a disk nor S3."""


PROTECTED_KIND: Final = "kept"
"""The kind of a file that is protected because of its directory. Every other kind is an
`iceberg_metadata.Kind`."""

ICEBERG_TYPES: Final = ("ICEBERG_TABLE", "ICEBERG_VIEW")
"""The types of contents whose metadata names their files."""


class Outcome(StrEnum):
    """The result of removing, restoring or purging one file. Rows have the value."""

    QUARANTINED = "QUARANTINED"
    DELETED = "DELETED"
    CHANGED = "CHANGED"
    """The file was rewritten or moved here since the run started, and stays."""
    GONE = "GONE"
    """The file was already removed."""
    RESTORED = "RESTORED"
    IN_PLACE = "IN PLACE"
    """The file is not in quarantine, but under its own name."""
    LOST = "LOST"
    """The file is neither in quarantine nor under its own name."""
    PURGED = "PURGED"
    FAILED = "FAILED"


class Reason(StrEnum):
    """Why a listed file stays. Rows have the value."""

    LIVE = "LIVE"
    """A live content needs it, by the metadata of any reference."""
    PROTECTED = "PROTECTED"
    """It is in the directory of a content that is not Iceberg's."""
    NOT_UNDERSTOOD = "NOT UNDERSTOOD"
    """It is in a directory of a table whose metadata is missing or cannot be read."""
    YOUNG = "YOUNG"
    """Nothing needs it, but it is younger than the grace period."""
    UNDATED = "UNDATED"
    """Nothing needs it, but its store does not tell its age."""


class Step(Struct, frozen=True):
    """One dataset of a run. `schema` is Spark DDL."""

    name: str
    schema: str

    def attempt(self, number: int) -> Step:
        """The dataset of the first, second, … attempt at this step: `removed`, `removed-2`, …"""
        return self if number == 1 else Step(f"{self.name}-{number}", self.schema)


# `root`: the name of a reference, or @ and the hash that a reference once had.
# `commits`, `since_nanos`: the cut-off of the reference.
# `until`: a commit below which everything is known already.
_REFS: Final = (
    "root STRING, hash STRING, commits BIGINT, since_nanos BIGINT, live BOOLEAN, until STRING"
)

_CONTENTS: Final = (
    "content_id STRING, type STRING, location STRING, snapshot_id BIGINT, key STRING, live BOOLEAN"
)

# `role`: a `Role`.
# `kind`: of a file an `iceberg_metadata.Kind` or PROTECTED_KIND, otherwise null.
# `path`: as the metadata spells it.
# `spelling`: as a listing may spell it. A file has one row per spelling; ELSEWHERE has none.
# `content_id`: the content that the file belongs to; null for files that are not read.
_FOUND: Final = (
    "role STRING, kind STRING, path STRING, spelling STRING, detail STRING, content_id STRING"
)

_FILES: Final = "path STRING, size_bytes BIGINT, modified_micros BIGINT, location STRING"

# `outcome`: an `Outcome`.
_OUTCOMES: Final = "path STRING, size_bytes BIGINT, outcome STRING, detail STRING"


class MarkSteps(Struct, frozen=True):
    """The steps that find what is live: once when a run starts, and again around each removal."""

    refs: Step
    contents: Step
    metadata: Step
    manifests: Step
    data: Step
    protected: Step

    @property
    def expanded(self) -> tuple[Step, Step, Step]:
        """The steps that lead from contents to files."""
        return self.metadata, self.manifests, self.data


FIRST_MARK: Final = MarkSteps(
    refs=Step("refs", _REFS),
    contents=Step("contents", _CONTENTS),
    metadata=Step("live-metadata", _FOUND),
    manifests=Step("live-manifests", _FOUND),
    data=Step("live-data", _FOUND),
    protected=Step("live-kept", _FOUND),
)


def second_mark(before: Step) -> MarkSteps:
    """The steps of the mark that precedes an attempt, such as `removed-2-again-refs`."""
    prefix = f"{before.name}-again"
    return MarkSteps(
        refs=Step(f"{prefix}-refs", _REFS),
        contents=Step(f"{prefix}-contents", _CONTENTS),
        metadata=Step(f"{prefix}-metadata", _FOUND),
        manifests=Step(f"{prefix}-manifests", _FOUND),
        data=Step(f"{prefix}-data", _FOUND),
        protected=Step(f"{prefix}-kept", _FOUND),
    )


# The directories of each table or view, now or formerly, as listings spell them.
HOMES: Final = Step("homes", "content_id STRING, location STRING")
# The directories to list: none is inside another.
LOCATIONS: Final = Step("locations", "location STRING")
# All files below the locations.
LISTED: Final = Step("listed", _FILES)
# The listed files that nothing live needs and that are older than the grace period.
ORPHANS: Final = Step("orphans", _FILES)

# How many of the listed files stay, for each `Reason`, and when the newest of them was written.
KEPT_FILES: Final = Step(
    "kept-files", "reason STRING, files BIGINT, size_bytes BIGINT, newest_micros BIGINT"
)

# Written before the first file is moved, so that `undo` knows all files that may have been moved.
DOOMED: Final = Step(
    "doomed", "path STRING, size_bytes BIGINT, modified_micros BIGINT, quarantined STRING"
)
# The outcome for each file; these steps have attempts.
REMOVED: Final = Step("removed", _OUTCOMES)
RESCUED: Final = Step("rescued", _OUTCOMES)
UNDONE: Final = Step("undone", _OUTCOMES)
PURGED: Final = Step("purged", _OUTCOMES)

WITH_ATTEMPTS: Final = (REMOVED, RESCUED, UNDONE, PURGED)

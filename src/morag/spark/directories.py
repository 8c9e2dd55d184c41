"""The directories that listed files are in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

if TYPE_CHECKING:
    from pyspark.sql import Column

# Of a path that was split at its slashes: `s3:`, nothing, and the bucket.
_SCHEME_AND_HOST: Final = 3


def directories_above(path: str) -> Column:
    """All directories that the file of a listed path is in, up to the whole disk or bucket."""
    parts = F.split(path, "/")
    depths = F.sequence(F.lit(_SCHEME_AND_HOST), F.size(parts) - 1)
    return F.transform(depths, lambda depth: F.array_join(F.slice(parts, F.lit(1), depth), "/"))

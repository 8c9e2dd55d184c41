"""Locations of files, and the different URIs that name the same file."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlparse

from msgspec import Struct

from morag.spark.errors import CannotRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

_URI: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
_SLASHES: Final = re.compile(r"/{2,}")
_S3: Final = frozenset({"s3", "s3a", "s3n"})
_CACHED_DIRECTORIES: Final = 16_384
# A listed path starts with three parts that slashes separate: `s3:`, nothing, and the bucket.
_SCHEME_AND_HOST: Final = 3


class Location(Struct, frozen=True):
    """A parsed location: `file`, no host and a path; or `s3`, a bucket and a path."""

    scheme: str
    host: str
    path: str

    @classmethod
    def of(cls, location: str) -> Location:
        """Parse without decoding `%`: Iceberg writes plain names, not encoded URIs."""
        found = _URI.fullmatch(location)
        if found is None:
            return cls("file", "", str(Path(location).absolute()))
        scheme, host, path = found[1].lower(), found[2] or "", found[3]
        if scheme == "file":
            return cls("file", "", _SLASHES.sub("/", path))
        if scheme not in _S3:
            raise CannotRun(
                f"'{location}' is on '{scheme}', but jobs handle the files of disks and of S3 only"
            )
        return cls("s3", host, path)

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"

    @property
    def has_empty_name(self) -> bool:
        """Whether a directory in the path has an empty name: S3 allows that, Arrow does not."""
        return "//" in self.path.rstrip("/")

    @property
    def arrow_path(self) -> str:
        """The path in the form that Arrow's file systems expect."""
        if self.has_empty_name:
            raise CannotRun(f"'{self}' cannot be reached: it has two slashes in a row")
        return f"{self.host}{self.path}".rstrip("/")

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}{self.path}"


def possible_locations(location: str) -> list[Location]:
    """All locations that a writer may have meant, the literal one first.

    Writers differ in whether they decode `%`, cut at `?` and `#`, and collapse two slashes into
    one. On S3 one and two slashes are different names, on disks they are the same.
    """
    found = [Location.of(location)]
    if "%" in location or "?" in location or "#" in location:
        cut = urlparse(location)._replace(query="", fragment="").geturl()
        found += [Location.of(text) for text in (unquote(location), cut, unquote(cut))]
    found += [
        Location(each.scheme, each.host, _SLASHES.sub("/", each.path))
        for each in found
        if "//" in each.path
    ]
    return list(dict.fromkeys(found))


def resolved_directory(directory: str) -> str:
    """A directory on disk with all links followed."""
    return str(Path(directory or "/").resolve()).rstrip("/")


def spellings(location: str, resolve: Callable[[str], str] = resolved_directory) -> set[str]:
    """The names under which a listing may show the file of this location.

    All locations of one file have a spelling in common: `file:/a`, `/a` and links to it, or
    `s3a://b/c` and `s3://b/c`. Where a writer may have meant one of several files, the spellings of
    all of them are included.
    """
    possible = possible_locations(location)
    found = {_spelling(each, resolve) for each in possible}
    for each in possible:
        if each.is_local and os.path.islink(each.path):  # noqa: PTH114 - Called for every file.
            found.add(f"file://{Path(each.path).resolve()}")
    return found


def caching_spellings() -> Callable[[str], set[str]]:
    """`spellings` that follows the links of each directory once.

    Make one per task: Spark's workers outlive a task, and links may change before the next one.
    """
    resolve = lru_cache(maxsize=_CACHED_DIRECTORIES)(resolved_directory)
    return lambda location: spellings(location, resolve)


def listing_prefix(directory: str) -> str:
    """How paths of files listed below a directory begin: links resolved, no slash at the end."""
    location = Location.of(directory)
    path = str(Path(location.path).resolve()) if location.is_local else location.path
    return str(Location(location.scheme, location.host, path.rstrip("/")))


def directories_above(path: str) -> Column:
    """All directories above the file of a listed path, up to the whole disk or bucket.

    `path` is the name of a column.
    """
    from pyspark.sql import functions as F  # noqa: N812 - PySpark's documentation calls it F.

    parts = F.split(path, "/")
    depths = F.sequence(F.lit(_SCHEME_AND_HOST), F.size(parts) - 1)
    return F.transform(depths, lambda depth: F.array_join(F.slice(parts, F.lit(1), depth), "/"))


def _spelling(location: Location, resolve: Callable[[str], str]) -> str:
    if not location.is_local:
        return str(location).rstrip("/")
    head, _, tail = location.path.rstrip("/").rpartition("/")
    return f"file://{resolve(head)}/{tail}"

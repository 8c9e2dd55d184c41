"""Locations, and what else the same file may be called: URIs are written in many ways."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from msgspec import Struct
from pyspark import TaskContext

from morag.spark.errors import CannotRun

_URI: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
_SLASHES: Final = re.compile(r"/{2,}")
_S3: Final = frozenset({"s3", "s3a", "s3n"})


class Place(Struct, frozen=True):
    """A location taken apart: `file`, no host and a path; or `s3`, a bucket and a path."""

    scheme: str
    host: str
    path: str

    @classmethod
    def of(cls, location: str) -> Place:
        """Letters are taken as they are: Iceberg writes names, not encoded URIs."""
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
    def is_nameless(self) -> bool:
        """Whether it is below a directory with an empty name, which S3 has and Arrow knows not."""
        return "//" in self.path.rstrip("/")

    @property
    def inside(self) -> str:
        """The path as Arrow's file systems want it."""
        if self.is_nameless:
            raise CannotRun(f"'{self}' cannot be reached: it has two slashes in a row")
        return f"{self.host}{self.path}".rstrip("/")

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}{self.path}"


def places_meant(location: str) -> list[Place]:
    """Where the file of a location may be, most likely where it says.

    Writers differ in whether they decode `%`, cut at `?` and `#`, and take two slashes for one: on
    S3 these are two names, on disks they are not.
    """
    places = [Place.of(location)]
    if "%" in location or "?" in location or "#" in location:
        cut = urlparse(location)._replace(query="", fragment="").geturl()
        places += [Place.of(text) for text in (unquote(location), cut, unquote(cut))]
    places += [Place(p.scheme, p.host, _SLASHES.sub("/", p.path)) for p in places if "//" in p.path]
    return list(dict.fromkeys(places))


def spellings(location: str) -> set[str]:
    """What a listing may call the file of this location.

    All locations that mean one file have a spelling in common: `file:/a`, `/a` and links to it, or
    `s3a://b/c` and `s3://b/c`. Where writers may have meant several files, none is missed.
    """
    places = places_meant(location)
    found = {_spelling(place) for place in places}
    for place in places:
        if place.is_local and os.path.islink(place.path):  # noqa: PTH114 - Each file is looked at.
            found.add(f"file://{Path(place.path).resolve()}")
    return found


def listed_as(directory: str) -> str:
    """How the paths of the files below a directory begin: with no link in it, nor at its end."""
    place = Place.of(directory)
    path = str(Path(place.path).resolve()) if place.is_local else place.path
    return str(Place(place.scheme, place.host, path.rstrip("/")))


def _spelling(place: Place) -> str:
    if not place.is_local:
        return str(place).rstrip("/")
    head, _, tail = place.path.rstrip("/").rpartition("/")
    task = TaskContext.get()
    directory = _resolved(head) if task is None else _resolved_once(head, task.taskAttemptId())
    return f"file://{directory}/{tail}"


@lru_cache(maxsize=16_384)
def _resolved_once(directory: str, task: int) -> str:
    """Once per task: workers outlive it, and links may lead elsewhere by the next."""
    return _resolved(directory)


def _resolved(directory: str) -> str:
    return str(Path(directory or "/").resolve()).rstrip("/")

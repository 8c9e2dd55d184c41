"""Where the files of a content may be, going by where its metadata is."""

from __future__ import annotations

import re
from typing import Final

_METADATA: Final = frozenset({"metadata", "_delta_log"})
_UUID: Final = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def surroundings(metadata_location: str) -> str:
    """The directory above the one for metadata. It may have more in it than the one content."""
    directory = metadata_location.rpartition("/")[0]
    above, _, last = directory.rpartition("/")
    return (above if last in _METADATA else directory) or "/"


def own_directory(key: str, metadata_location: str) -> str | None:
    """The same, if it is certain that nothing else is there.

    Metadata may also be in a directory that tables share, and what is above that may be anything.
    So the names must be those that engines choose: of the namespace and the table, or of the table
    and a UUID.
    """
    found = surroundings(metadata_location)
    above, _, last = found.rpartition("/")
    namespace = above.rpartition("/")[2].removesuffix(".db")
    elements = key.split(".")
    if elements[0] == "":  # Escaped, since a name has dots.
        return None
    has_uuid = re.fullmatch(f"{re.escape(elements[-1])}_{_UUID}", last) is not None
    return found if has_uuid or elements[-2:] == [namespace, last] else None

"""The files that live references need, by a slow search that shares no code with the job.

It reads all entries of each live commit, and each table and view with PyIceberg's own classes.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.io import load_file_io
from pyiceberg.manifest import ManifestContent, ManifestFile, read_manifest_list

from morag import IcebergTable, IcebergView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from morag.catalog import Catalog


class Reachability:
    """Caches the files that each metadata file names, because metadata files never change."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self._options = dict(options or {})
        self._known: dict[str, frozenset[str]] = {}

    def files(self, catalog: Catalog, live_commits: Callable[[str], int]) -> set[str]:
        """The files that the newest `live_commits(name)` of each reference need, at least one."""
        found: set[str] = set()
        for location in self.locations(catalog, live_commits):
            found |= self._files_of(location)
        return found

    def locations(self, catalog: Catalog, live_commits: Callable[[str], int]) -> set[str]:
        found = set()
        for reference in list(catalog.references.list()):
            name = reference.name or ""
            hashes = list(catalog.history.hashes(f"{name}@{reference.hash}"))
            for hash in hashes[: max(1, live_commits(name))]:
                for entry in catalog.contents.entries(f"@{hash}", with_content=True):
                    if isinstance(entry.content, IcebergTable | IcebergView):
                        found.add(entry.content.metadata_location)
        return found

    def _files_of(self, location: str) -> frozenset[str]:
        if location not in self._known:
            self._known[location] = frozenset(self._read(location))
        return self._known[location]

    def _read(self, location: str) -> set[str]:
        io = load_file_io(self._options, location)
        text = io.new_input(location).open().read()
        metadata = json.loads(gzip.decompress(text) if ".gz." in location else text)
        found = {location, *(entry["metadata-file"] for entry in metadata.get("metadata-log", ()))}
        for statistics in ("statistics", "partition-statistics"):
            found |= {each["statistics-path"] for each in metadata.get(statistics, ())}
        for snapshot in metadata.get("snapshots", ()):
            manifests = [_manifest(path) for path in snapshot.get("manifests", ())]
            if "manifest-list" in snapshot:
                found.add(snapshot["manifest-list"])
                manifests += read_manifest_list(io.new_input(snapshot["manifest-list"]))
            for manifest in manifests:
                found.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
                found |= {entry.data_file.file_path for entry in entries}
        return found


def _manifest(path: str) -> ManifestFile:
    """A manifest as a manifest list would name it."""
    return ManifestFile.from_args(
        manifest_path=path, partition_spec_id=0, content=ManifestContent.DATA, sequence_number=0
    )


def files_on_disk(directory: Path) -> set[str]:
    """All files, as PyIceberg names them, without those in quarantine."""
    return {
        path.as_uri()
        for path in directory.rglob("*")
        if path.is_file() and not any(part.startswith(".morag-") for part in path.parts)
    }


def path_of(location: str) -> Path:
    """The path of a location on disk: Spark writes `file:/a`, PyIceberg `file:///a`."""
    return Path(location.removeprefix("file://").removeprefix("file:"))

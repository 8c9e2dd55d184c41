"""A store that counts as remote: SQLite behind its own URL scheme, which a test can make fail.

It is installed like a backend of another package, so that server processes find it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from morag.backend.sqlite.backend import SQLiteBackend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.backend.base import Ref
    from morag.backend.urls import StoreUrl

ROOT = Path(__file__).parents[2]


def open_remote(url: StoreUrl) -> RemoteBackend:
    return RemoteBackend(Path("/" + url.rest.partition("@")[2].partition("/")[2]))


class RemoteBackend(SQLiteBackend):
    """Reading references fails while the file `down` is in the directory of the database."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._down = path.parent / "down"

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        if self._down.exists():
            raise OSError("cannot reach remote://user:secret@machine")
        return super().read_refs(repo, names)


def install(directory: Path) -> dict[str, str]:
    """Install the backend in a directory; returns environment variables with which it is found."""
    metadata = directory / "remote_store-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: remote_store\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[morag.backends]\nremote = tests.server.remote_store:open_remote\n"
    )
    return {"PYTHONPATH": f"{directory}:{ROOT}"}


def remote_url(directory: Path) -> str:
    return f"remote://user:secret@machine{directory.absolute()}/remote.db"

"""A store that counts as another machine's: SQLite behind a scheme of its own, with a switch.

It is installed as a backend of another package would be, so that servers find it by themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from morag.backend.sqlite import SQLiteBackend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.backend.base import Ref
    from morag.backend.urls import StoreUrl

ROOT = Path(__file__).parents[2]


def open_far(url: StoreUrl) -> FarBackend:
    return FarBackend(Path("/" + url.rest.partition("@")[2].partition("/")[2]))


class FarBackend(SQLiteBackend):
    """While the file `down` is beside it, reading references fails as a driver would."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._down = path.parent / "down"

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        if self._down.exists():
            raise OSError("cannot reach far://somebody:secret@machine")
        return super().read_refs(repo, names)


def install(directory: Path) -> dict[str, str]:
    """What the environment of a process needs to know to find it."""
    described = directory / "far-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: far\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(
        "[morag.backends]\nfar = tests.server.far:open_far\n"
    )
    return {"PYTHONPATH": f"{directory}:{ROOT}"}


def far_url(directory: Path) -> str:
    return f"far://somebody:secret@machine{directory.absolute()}/far.db"

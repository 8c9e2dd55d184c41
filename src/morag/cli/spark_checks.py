"""Checks of a command line before Java starts: a mistake should not take fifteen seconds."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from morag.backend.urls import StoreUrl
from morag.cli.main import Misuse
from morag.config import Settings
from morag.errors import MoragError
from morag.spark.gc.record_files import is_on_disk
from morag.spark.locations import Location
from morag.versions.maintenance.checking import check_not_empty

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from morag.model.keys import ContentKey
    from morag.spark.opening import Origin


@contextmanager
def misuse() -> Iterator[None]:
    """Errors in the block are those of the command line."""
    try:
        yield
    except MoragError as error:
        raise Misuse(str(error)) from error


def check_store(origin: Origin) -> None:
    """Open the store, and look for the repository in it."""
    from morag.spark.opening import opened_backend

    assert origin.store is not None, "the command refuses a server"
    settings = StoreUrl.parse(origin.store).settings(Settings(repository_id=origin.repository_id))
    with opened_backend(origin) as backend:
        check_not_empty(backend, settings)


def check_refs(origin: Origin, *refs: str | None) -> None:
    """Open the catalog, and look for the refs in it; None is the default branch."""
    with origin.open() as catalog:
        for ref in refs:
            if ref is not None:
                catalog.resolve(ref)


def check_versions(
    origin: Origin,
    refs: tuple[str, str],
    key: ContentKey,
    columns: Sequence[str],
    files: Mapping[str, str],
) -> None:
    """One of the refs must have the table, and the table these columns."""
    from morag.spark.table_versions import check_columns, find_versions

    with origin.open() as catalog:
        versions = find_versions(catalog, *refs, key)
    if columns:
        check_columns(versions, columns, files)


def check_new_path(flag: str, path: str | None) -> None:
    """An existing path on disk is refused. Spark checks all others when it writes."""
    if path is not None and is_on_disk(path, ()) and Path(Location.of(path).path).exists():
        raise Misuse(f"{flag} '{path}' exists already; name another path")

"""The first rows of a recorded step, read from disk without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from morag.spark.gc.steps import FIRST_MARK, WITH_ATTEMPTS, Role
from morag.spark.locations import Location

if TYPE_CHECKING:
    from morag.spark.gc.records import Records


def first_rows(records: Records, part: str, limit: int) -> list[dict[str, Any]] | None:
    """Up to `limit` rows of a step, of the live files, or of the problems of a run on disk.

    None if several attempts have to be combined, which takes Spark.
    """
    if part in {step.name for step in WITH_ATTEMPTS} and records.step(f"{part}-2") is not None:
        return None
    expanded = [step.name for step in FIRST_MARK.expanded]
    if part == "live":
        names, roles = [*expanded, FIRST_MARK.protected.name], [Role.FILE]
    elif part == "problems":
        names, roles = expanded, [Role.MISSING, Role.UNREADABLE, Role.ELSEWHERE]
    else:
        names, roles = [part], []
    rows: list[dict[str, Any]] = []
    for name in names:
        if records.step(name) is None:
            raise records.unknown_step(name)
        rows += _rows(f"{records.path}/{name}", roles, limit - len(rows))
    return rows


def _rows(path: str, roles: list[Role], limit: int) -> list[dict[str, Any]]:
    # Imported here, because `morag spark gc list` does not need it.
    from pyarrow import dataset

    found = dataset.dataset(Location.of(path).path, format="parquet")
    wanted = dataset.field("role").isin([role.value for role in roles]) if roles else None
    rows: list[dict[str, Any]] = found.head(limit, filter=wanted).to_pylist()
    return rows

"""Random contents of each type. They point to files that do not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.model.content import DeltaLakeTable, IcebergTable, IcebergView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from morag.model.content import Content

_MOST_FURTHER_LOCATIONS: Final = 3


def random_content(type: str, random: Random, id: str | None) -> Content:
    """A new content, or the next state of the content with that id."""
    return CONTENT_TYPES[type](random, id)


def _iceberg_table(random: Random, id: str | None) -> Content:
    # One number for all fields: drawing each of them would take as long as everything else.
    bits = random.getrandbits(192)
    return IcebergTable(
        id=id,
        metadata_location=_location(bits >> 128),
        snapshot_id=(bits >> 64) & 0x7FFF_FFFF_FFFF_FFFF,
        schema_id=bits & 0xFFFF,
        spec_id=(bits >> 16) & 0xFFFF,
        sort_order_id=(bits >> 32) & 0xFFFF,
    )


def _iceberg_view(random: Random, id: str | None) -> Content:
    bits = random.getrandbits(128)
    return IcebergView(
        id=id,
        metadata_location=_location(bits >> 64),
        version_id=(bits >> 16) & 0x7FFF_FFFF,
        schema_id=bits & 0xFFFF,
        sql_text="SELECT 1",
        dialect="spark",
    )


def _delta_lake_table(random: Random, id: str | None) -> Content:
    locations = 1 + random.randrange(_MOST_FURTHER_LOCATIONS + 1)
    return DeltaLakeTable(
        id=id,
        metadata_location_history=tuple(
            _location(random.getrandbits(64)) for _ in range(locations)
        ),
        last_checkpoint=_location(random.getrandbits(64)),
    )


def _location(number: int) -> str:
    return f"generated:///{number:016x}/metadata.json"


CONTENT_TYPES: Final[Mapping[str, Callable[[Random, str | None], Content]]] = {
    "ICEBERG_TABLE": _iceberg_table,
    "ICEBERG_VIEW": _iceberg_view,
    "DELTA_LAKE_TABLE": _delta_lake_table,
}

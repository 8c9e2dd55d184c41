"""A catalog with contents of all kinds, on a server whose store can be opened at the same time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from morag import (
    UDF,
    CommitMeta,
    ContentKey,
    Delete,
    DeltaLakeTable,
    IcebergTable,
    IcebergView,
    Namespace,
    Put,
)
from morag.client import Client
from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MANY: Final = 1500
"""The number of tables in one namespace: enough that the index is cut into stripes."""


def table(number: int, id: str | None = None) -> IcebergTable:
    return IcebergTable(
        id=id,
        metadata_location=f"file:///lake/{number}.json",
        snapshot_id=number << 40,
        schema_id=1,
        spec_id=2,
        sort_order_id=3,
    )


def fill(client: Client) -> None:
    """Several commits on `main`, then a branch `dev` that changed, added and dropped something."""
    view = IcebergView(metadata_location="v", version_id=7, schema_id=1, sql_text="-", dialect="-")
    delta = DeltaLakeTable(
        metadata_location_history=("a", "b"), checkpoint_location_history=(), last_checkpoint="c"
    )
    spaces = [("many",), ("a",), ("a", "b"), ("we.ird",), ("we.ird", "*"), ("grün",)]
    client.commit(
        "main",
        [
            Put(ContentKey(space), Namespace(elements=space, properties={"p": "q"}))
            for space in spaces
        ],
        CommitMeta(
            message="spaces",
            authors=("ann", "bob"),
            author_time="2024-02-29T12:00:00.123456789Z",
            signed_off_by=("zoe",),
            properties={"k": ("v1", "v2"), "l": ("w",)},
        ),
    )
    client.commit(
        "main",
        [Put(ContentKey.of("many", f"t{n:05}"), table(n)) for n in range(MANY)],
        "many tables",
    )
    client.commit(
        "main",
        [
            Put(ContentKey.of("top"), table(-1)),
            Put(ContentKey.of("a", "view"), view),
            Put(ContentKey.of("a", "delta"), delta),
            Put(ContentKey.of("a", "b", "t"), table(1)),
            Put(ContentKey.of("a", "bc"), table(2)),
            Put(ContentKey.of("we.ird", "t"), table(3)),
            Put(ContentKey.of("we.ird", "*", "d.ot"), table(4)),
            Put(ContentKey.of("grün", "Ω😀"), table(5)),
            Put(ContentKey.of("a", "f"), UDF(sql_text="1", dialect="x")),
        ],
        "odd ones",
    )
    client.references.create_tag("v1", "main")
    client.references.create_branch("dev", "main")
    changed = client.contents.get("dev", ContentKey.of("a", "b", "t"))
    client.commit(
        "dev",
        [
            Put(ContentKey.of("a", "b", "t"), table(99, changed.id)),
            Put(ContentKey.of("a", "new"), table(100)),
            Delete(ContentKey.of("many", "t00007")),
        ],
        "on dev",
    )
    client.references.create_branch("gone", "dev")
    client.references.delete("gone")


@contextmanager
def filled(directory: Path, store: str) -> Iterator[tuple[Served, Client]]:
    with Served(directory, store=store) as served, Client(served.url) as client:
        fill(client)
        yield served, client

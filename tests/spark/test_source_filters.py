"""Filters of a query are applied while reading, and do not change the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    In,
    IsNotNull,
    StringStartsWith,
)

from tests.spark.in_process_read import Read
from tests.spark.sample_catalog import MANY

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

Options = dict[str, str]
ALL = MANY + 15
PARTS = {"partitions": "4"}


@pytest.fixture(params=["uri", "store"])
def options(request: pytest.FixtureRequest, catalog_options: dict[str, Options]) -> Options:
    return catalog_options[request.param]


@pytest.mark.parametrize(
    ("filter", "read_at_most", "parts"),
    [
        (EqualTo(("namespace",), "a.b"), 1, 1),
        (EqualTo(("namespace",), "a"), 6, 1),
        (EqualTo(("namespace",), "many"), MANY, 4),
        (EqualTo(("namespace",), "nothing.like.it"), 0, 1),
        (EqualTo(("namespace",), ".we*.ird.**"), 1, 1),
        (EqualTo(("namespace",), "grün"), 1, 1),
        (EqualTo(("namespace",), ""), ALL, 4),
        (StringStartsWith(("namespace",), "a."), 6, 1),
        (StringStartsWith(("namespace",), "a"), 7, 1),
        (StringStartsWith(("namespace",), "man"), MANY + 1, 4),
        (StringStartsWith(("namespace",), ".we"), ALL, 4),
        (StringStartsWith(("namespace",), ""), ALL, 4),
        (EqualTo(("key",), ["a", "b", "t"]), 1, 1),
        (EqualTo(("key",), ["no", "such"]), 0, 1),
    ],
)  # fmt: skip
def test_fewer_rows_are_read_and_spark_applies_the_remaining_filters(
    options: Options, filter: Filter, read_at_most: int, parts: int
) -> None:
    """Parts that cannot contain a matching key are not read."""
    read = Read(options | PARTS, filters=[filter])
    rows = list(read)
    assert read.left == [filter]
    assert len(rows) <= read_at_most
    assert len(read.parts) <= parts
    whole = list(Read(options | {"partitions": "1"}))
    assert [r for r in rows if _passes(r, filter)] == [r for r in whole if _passes(r, filter)]


@pytest.mark.parametrize(
    ("filters", "keys"),
    [
        ([EqualTo(("content_type",), "ICEBERG_VIEW")], [["a", "view"]]),
        ([EqualNullSafe(("content_type",), "UDF")], [["a", "f"]]),
        ([In(("content_type",), ("UDF", "DELTA_LAKE_TABLE", None))], [["a", "delta"], ["a", "f"]]),
        ([EqualTo(("content_type",), "no such")], []),
        ([EqualTo(("name",), "t")], [["a", "b", "t"], ["we.ird", "t"]]),
        ([In(("name",), ("t00003", "d.ot"))], [["many", "t00003"], ["we.ird", "*", "d.ot"]]),
        ([EqualTo(("name",), "b"), EqualTo(("content_type",), "NAMESPACE")], [["a", "b"]]),
        ([EqualTo(("name",), "b"), EqualTo(("content_type",), "UDF")], []),
        ([EqualTo(("name",), "b"), EqualTo(("name",), "t")], []),
        ([EqualTo(("name",), 'quo"te\\n')], []),
    ],
)
def test_filters_by_name_and_type_are_applied_completely(
    options: Options, filters: list[Filter], keys: list[list[str]]
) -> None:
    read = Read(options | PARTS, filters=[*filters, IsNotNull(("name",))])
    assert read.left == []
    assert [row["key"] for row in read] == keys


def test_a_key_and_a_type(options: Options) -> None:
    key = EqualTo(("key",), ["a", "view"])
    for type, keys in (("UDF", []), ("ICEBERG_VIEW", [["a", "view"]])):
        read = Read(options, ["key", "content"], [key, EqualTo(("content_type",), type)])
        assert read.left == [key]
        assert [row["key"] for row in read] == keys


def test_other_filters_are_left_to_spark(options: Options) -> None:
    filters = [
        GreaterThan(("snapshot_id",), 5),
        IsNotNull(("snapshot_id",)),
        EqualTo(("metadata_location",), "x"),
    ]
    read = Read(options | PARTS, filters=filters)
    assert read.left == filters
    assert len(list(read)) == ALL


def test_a_diff_within_a_namespace(options: Options) -> None:
    requested = options | {"table": "diff", "from": "main", "to": "dev"}
    filter = EqualTo(("namespace",), "a")
    assert {tuple(row["key"]) for row in Read(requested, filters=[filter])} == {
        ("a", "b", "t"),
        ("a", "new"),
    }
    for one in (EqualTo(("name",), "new"), EqualTo(("key",), ["a", "new"])):
        assert [row["key"] for row in Read(requested, filters=[one])] == [["a", "new"]]


def test_references_of_one_kind(options: Options) -> None:
    read = Read(options | {"table": "references"}, filters=[EqualTo(("type",), "TAG")])
    assert [row["name"] for row in read] == ["v1"]


def test_objects_of_some_kinds(catalog_options: dict[str, Options]) -> None:
    requested = catalog_options["store"] | {"table": "objects"}
    kinds = In(("kind",), ("COMMIT", "REFOBJ"))
    assert {row["kind"] for row in Read(requested, ["kind"], [kinds])} == {"COMMIT", "REFOBJ"}


def _passes(row: dict[str, object], filter: Filter) -> bool:
    match filter:
        case EqualTo((column,), value):
            return bool(row[column] == value)
        case StringStartsWith((column,), start):
            return str(row[column]).startswith(start)
    raise AssertionError(f"no rule for {filter}")

"""Locations and their spellings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag.spark import CannotRun
from morag.spark.files import Files
from morag.spark.gc.expand import read_contents
from morag.spark.locations import (
    Location,
    caching_spellings,
    listing_prefix,
    possible_locations,
    spellings,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_all_ways_to_write_a_location_have_a_spelling_in_common(tmp_path: Path) -> None:
    path = f"{tmp_path.resolve()}/b.avro"
    for location in (path, f"file:{path}", f"file://{path}", f"FILE:///{path}"):
        assert spellings(location) == {f"file://{path}"}
    assert spellings("s3a://lake/x/y") == spellings("s3://lake/x/y") == {"s3://lake/x/y"}


def test_two_slashes_are_one_on_disks_and_may_be_one_or_two_on_s3() -> None:
    assert str(Location.of("file:///a//b")) == "file:///a/b"
    assert spellings("s3a://lake/x//y") == {"s3://lake/x//y", "s3://lake/x/y"}
    assert [str(each) for each in possible_locations("s3://lake/x//y")] == [
        "s3://lake/x//y",
        "s3://lake/x/y",
    ]


def test_links_to_directories_and_to_files_are_followed(tmp_path: Path) -> None:
    top = tmp_path.resolve()
    (top / "t").mkdir()
    (top / "t" / "b").write_bytes(b"b")
    (top / "link").symlink_to(top / "t")
    (top / "t" / "a").symlink_to(top / "link" / "b")
    assert spellings(f"{top}/link/b") == {f"file://{top}/t/b"}
    assert spellings(f"{top}/link/a") == {f"file://{top}/t/a", f"file://{top}/t/b"}


def test_a_directory_is_named_without_links(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t")
    for location in (f"{tmp_path}/t", f"file:{tmp_path}/link", f"file://{tmp_path}/link/"):
        assert listing_prefix(location) == f"file://{tmp_path.resolve()}/t"
    assert listing_prefix("s3a://lake/t/") == "s3://lake/t"
    assert (listing_prefix("/"), listing_prefix("s3://lake/")) == ("file://", "s3://lake")


def test_names_that_writers_may_decode_have_a_spelling_for_each() -> None:
    assert spellings("s3://lake/a%20b?c") == {
        "s3://lake/a%20b?c",
        "s3://lake/a b?c",
        "s3://lake/a%20b",
        "s3://lake/a b",
    }


def test_other_file_systems_are_refused_by_name() -> None:
    with pytest.raises(CannotRun, match="'gs'"):
        Location.of("gs://lake/x")


def test_links_are_followed_once_per_task_and_anew_in_the_next(tmp_path: Path) -> None:
    top = tmp_path.resolve()
    link = top / "link"
    for name in ("old", "new"):
        (top / name).mkdir()
    link.symlink_to(top / "old")
    first = caching_spellings()
    assert first(f"{link}/x") == {f"file://{top}/old/x"}
    link.unlink()
    link.symlink_to(top / "new")
    assert first(f"{link}/y") == {f"file://{top}/old/y"}
    assert caching_spellings()(f"{link}/x") == {f"file://{top}/new/x"}
    function = {"content_id": "f", "type": "UDF", "location": f"{link}/x", "snapshot_id": None}
    for name in ("old", "new"):
        link.unlink()
        link.symlink_to(top / name)
        found = {row[:4] for row in read_contents(Files(), iter([function]))}
        assert ("FILE", "metadata", f"{link}/x", f"file://{top}/{name}/x") in found

"""What is live and cannot be understood keeps everything around it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import morag
from morag import UDF, ContentKey, Delete, DeltaLakeTable, IcebergTable, Put
from morag.cli.main import main
from morag.spark import CannotRun
from tests.spark.scene import Scene, paths

if TYPE_CHECKING:
    from morag.spark.progress import Progress

pytestmark = pytest.mark.timeout(600)  # Spark is slow on machines that are busy.


@pytest.mark.long
def test_live_contents_that_are_not_icebergs_keep_all_their_files(scene: Scene) -> None:
    scene.lake.make("db.t")
    nested = _make_delta(scene, "db/t/nested")
    again, gone = _make_delta(scene, "again"), _make_delta(scene, "gone")
    function = UDF(metadata_location=_write(scene, "functions/f.json").as_uri())
    older = _write(scene, "functions/e.json")
    stray = _write(scene, "stray.parquet")
    tables = {"nested": nested, "again": again, "gone": gone}
    puts = [Put(ContentKey.of(name), table) for name, table in tables.items()]
    scene.catalog.commit("main", [*puts, Put(ContentKey.of("f"), function)], "make them")
    old = scene.catalog.references.get("main").hash
    scene.catalog.commit("main", [_delete("again"), _delete("gone")], "drop two")
    scene.age()
    before = scene.files()

    def race(progress: Progress) -> None:
        branches = [each.name for each in scene.catalog.references.list()]
        if progress.stage == "removed" and "back" not in branches:
            scene.catalog.references.create_branch("back", f"@{old}")
            scene.catalog.commit("back", [_delete("gone")], "bring one back")

    run = scene.collect(cutoff="1", locations=[str(scene.warehouse)], dry_run=False, progress=race)
    dead = {f"{scene.warehouse.as_uri()}/gone/{name}" for name in ("0.parquet", "deep/1.parquet")}
    assert paths(run.orphans) == {stray.as_uri(), *dead, *(_in_again(each) for each in dead)}
    assert before - scene.files() == {stray.as_uri(), *dead}
    assert older.exists()
    kept = {row.path: row.detail for row in run.live.where("kind = 'kept'").collect()}
    assert kept[older.as_uri()] == older.parent.as_uri()


def test_tables_with_lost_metadata_keep_all_their_files(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = scene.lake
    # Of this one, the tag's metadata is lost. Where it was does not tell where the data is.
    lake.make("db.far", properties={"write.metadata.path": f"{scene.warehouse.as_uri()}/far"})
    scene.catalog.references.create_tag("past", "main")
    tagged = lake.metadata_location("db.far")
    lake.grow("db.far")
    _path(tagged).unlink()
    for name in ("well", "lost", "listless", "moved", "gone"):
        lake.make(f"db.{name}")
    _path(lake.metadata_location("db.lost")).unlink()
    snapshot = lake.load_table("db.listless").current_snapshot()
    assert snapshot is not None
    _path(snapshot.manifest_list).unlink()
    # Its metadata is on a store that is not known, and leads to files on one that is.
    moved = scene.catalog.contents.get("main", ContentKey.of("db", "moved"))
    assert isinstance(moved, IcebergTable)
    elsewhere = morag.replace(moved, metadata_location="gs://bucket/moved/metadata/9.json")
    scene.catalog.commit("main", [Put(ContentKey.of("db", "moved"), elsewhere)], "move it")
    lake.drop("db.gone")
    tables = ("well", "lost", "listless", "moved", "far", "gone")
    strays = {name: _write(scene, f"db/{name}/data/stray.parquet").as_uri() for name in tables}
    scene.age()
    gone = {each for each in scene.files() if "/db/gone/" in each}
    # Where that metadata may have its data, for all that anybody here knows.
    asked = _write(scene, "asked/0.parquet")
    before = scene.files()
    run = scene.collect(cutoff="1", ignore_missing=True, locations=[str(asked.parent)])
    assert paths(run.orphans) == gone | {strays["well"], asked.as_uri()}
    with pytest.raises(CannotRun, match=r"further locations .*'gs://bucket/moved/metadata/9.json'"):
        scene.sweep(run)
    assert scene.files() == before

    assert main(["spark", "gc", "resume", run.path, "--store", scene.origin.store or ""]) == 0
    said = capsys.readouterr().out
    assert "  problems: metadata of 1 contents is on stores that are not looked at" in said
    assert "  problems: metadata of 3 contents is missing" in said


def _make_delta(scene: Scene, name: str) -> DeltaLakeTable:
    for file in ("0.parquet", "deep/1.parquet"):
        _write(scene, f"{name}/{file}")
    log = _write(scene, f"{name}/_delta_log/00000000000000000000.json").as_uri()
    return DeltaLakeTable(metadata_location_history=(log,))


def _in_again(path: str) -> str:
    return path.replace("/gone/", "/again/")


def _write(scene: Scene, name: str) -> Path:
    path = scene.warehouse / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"something")
    return path


def _delete(name: str) -> Delete:
    return Delete(ContentKey.of(name))


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://"))

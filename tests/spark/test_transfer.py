"""Exports and imports on Spark are those without Spark, and every index is complete."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

import morag
from morag.backend.memory import MemoryBackend
from morag.backend.urls import open_backend
from morag.cli.main import main
from morag.errors import BadRequest, ImportUnderWay, RepositoryExists
from morag.format.export_messages import EXPORTED_COMMIT, HEADS_AND_FORKS
from morag.format.ids import NO_ANCESTOR
from morag.spark.opening import Origin
from morag.spark.transfer import export_repository, export_tables, import_repository
from morag.versions.transfer.archive import ArchiveReader
from morag.versions.transfer.file_names import HEADS_AND_FORKS as SHAPE
from morag.versions.transfer.file_names import METADATA
from tests.safety.full_repository import SMALL
from tests.transfer import nessie_files
from tests.transfer.copies import assert_intact, export_to, import_from, state
from tests.transfer.generated_history import generate

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from morag.spark.progress import Progress

_COMMITS: Final = 150
_GROUP: Final = 12
"""So small that there are several groups, with checkpoints between them."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with branches, merges, deletes and tags, whose indexes spill."""
    store = f"sqlite:{tmp_path_factory.mktemp('source') / 'store'}?sync=off"
    with morag.open(store, SMALL) as repo:
        generate(repo, _COMMITS, seed=14)
    return store


@pytest.fixture(scope="module")
def exported(source: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export without Spark."""
    path = tmp_path_factory.mktemp("exported") / "files"
    with closing(open_backend(source, read_only=True)) as backend:
        export_to(path, backend, SMALL)
    return path


def content_of(path: Path) -> dict[str, Any]:
    """All that an export says, without the order of commits and the division into files."""
    with ArchiveReader(path) as archive, archive.open(SHAPE) as file:
        meta = archive.meta
        shape = HEADS_AND_FORKS.decode(file.read())

        def messages(names: tuple[str, ...]) -> list[bytes]:
            return [message for name in names for _, message in archive.messages(name)]

        commits = messages(meta.commit_files)
        generic = messages(meta.generic_files)
        assert (meta.commit_count, meta.generic_count) == (len(commits), len(generic))
        return {
            "commits": sorted(commits),
            "references": messages(meta.reference_files),
            "generic": sorted(generic),
            "heads": sorted(shape.heads),
            "forks": sorted(shape.forks),
            "description": archive.description(),
            "extras": list(archive.extra_lines()),
            "version": (meta.version, meta.reference_count),
        }


def assert_same_repository(store: str, source: str) -> None:
    with morag.open(store, SMALL) as found, morag.open(source, SMALL) as expected:
        assert state(found) == state(expected)
        assert_intact(found, _COMMITS)


def test_an_export_on_spark_is_the_export_without_it(
    spark: SparkSession, source: str, exported: Path, tmp_path: Path
) -> None:
    path = tmp_path / "files"
    report = export_repository(spark, Origin(store=source), str(path), file_commits=40)
    assert report.commits >= _COMMITS
    assert content_of(path) == content_of(exported)
    assert sorted(file.name[:7] for file in path.iterdir()).count("commits") >= 4
    known = {NO_ANCESTOR}
    with ArchiveReader(path) as archive:
        for name in archive.meta.commit_files:
            for _, message in archive.messages(name):
                commit = EXPORTED_COMMIT.decode(message)
                assert commit.parent in known, "an import could not complete it at once"
                known.add(commit.id)


@pytest.mark.parametrize("engine", ["sqlite", "rocksdb"])
def test_an_import_on_spark_completes_every_index(
    spark: SparkSession, source: str, exported: Path, tmp_path: Path, engine: str
) -> None:
    store = f"{engine}:{tmp_path / 'store'}"
    stages: set[str] = set()

    def note(progress: Progress) -> None:
        stages.add(progress.stage)

    report = import_repository(
        spark,
        Origin(store=store),
        str(exported),
        settings=SMALL,
        group_commits=_GROUP,
        progress=note,
    )
    assert stages == {"objects", "plan", "checkpoints", "commits"}
    with ArchiveReader(exported) as archive:
        assert report.commits == archive.meta.commit_count
        assert report.references == archive.meta.reference_count
        assert report.objects == archive.meta.generic_count
    assert report.found == 0
    # Checkpoints are completed before others, so the order differs.
    expected = import_from(exported, MemoryBackend(), SMALL)
    assert sorted(report.unfit_ids) == sorted(expected.unfit_ids)
    assert_same_repository(store, source)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_files_in_nessies_order_are_imported(
    spark: SparkSession, source: str, exported: Path, tmp_path: Path, version: int
) -> None:
    nessie_files.rewrite(exported, tmp_path / "files", version=version, max_file_bytes=9_000)
    store = f"sqlite:{tmp_path / 'store'}"
    import_repository(
        spark,
        Origin(store=store),
        str(tmp_path / "files"),
        settings=SMALL,
        group_commits=3 * _GROUP,
    )
    with morag.open(store, SMALL) as found, morag.open(source, SMALL) as expected:
        assert_intact(found, _COMMITS)
        one, other = state(found), state(expected)
        for lost in ("notes", "config", "moves"):
            del one[lost], other[lost]
        assert one == other


def test_a_zip_file_is_unpacked_and_removed(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    path = tmp_path / "export" / "files.zip"
    with closing(open_backend(source, read_only=True)) as backend:
        export_to(path, backend, SMALL)
    store = f"sqlite:{tmp_path / 'store'}"
    import_repository(spark, Origin(store=store), str(path), settings=SMALL)
    assert_same_repository(store, source)
    assert [file.name for file in path.parent.iterdir()] == ["files.zip"]


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_an_interrupted_import_is_refused_by_servers_and_resumed(
    spark: SparkSession, source: str, exported: Path, tmp_path: Path, share: float
) -> None:
    origin = Origin(store=f"sqlite:{tmp_path / 'store'}")
    broken = tmp_path / "broken"
    shutil.copytree(exported, broken)
    with ArchiveReader(exported) as archive:
        (name,) = archive.meta.commit_files
    whole = (broken / name).read_bytes()
    bad = whole.rindex(b'"type"', 0, int(share * len(whole)))
    (broken / name).write_bytes(whole[:bad] + b'"tYpe"' + whole[bad + 6 :])
    with pytest.raises(Py4JJavaError, match="has a content that is not readable"):
        import_repository(spark, origin, str(broken), settings=SMALL, group_commits=_GROUP)
    assert origin.store is not None
    with pytest.raises(ImportUnderWay):
        morag.open(origin.store)
    with pytest.raises(RepositoryExists, match="--resume"):
        import_repository(spark, origin, str(exported), settings=SMALL)
    import_repository(
        spark, origin, str(exported), settings=SMALL, group_commits=2 * _GROUP, resume=True
    )
    assert_same_repository(origin.store, source)


def test_groups_that_are_stored_are_found_when_an_import_is_resumed(
    spark: SparkSession, source: str, exported: Path, tmp_path: Path
) -> None:
    """As if the import had been killed before its end."""
    origin = Origin(store=f"sqlite:{tmp_path / 'store'}")
    assert origin.store is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("morag.versions.transfer.importing.create_all", _fail)
        with pytest.raises(_Killed):
            import_repository(spark, origin, str(exported), settings=SMALL, group_commits=_GROUP)
    report = import_repository(
        spark, origin, str(exported), settings=SMALL, group_commits=_GROUP, resume=True
    )
    assert report.found == report.commits >= _COMMITS
    assert_same_repository(origin.store, source)


class _Killed(Exception):
    pass


def _fail(*_: object) -> None:
    raise _Killed


def test_an_existing_repository_is_not_changed(
    spark: SparkSession, source: str, exported: Path
) -> None:
    with morag.open(source, SMALL) as repo:
        before = state(repo)
    with pytest.raises(RepositoryExists, match="--erase"):
        import_repository(spark, Origin(store=source), str(exported))
    with morag.open(source, SMALL) as repo:
        assert state(repo) == before


def test_an_export_needs_a_new_directory(spark: SparkSession, source: str, exported: Path) -> None:
    with pytest.raises(BadRequest, match="has files in it"):
        export_repository(spark, Origin(store=source), str(exported))


def test_tables_have_every_commit_and_operation(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    path = tmp_path / "tables"
    report = export_tables(spark, Origin(store=source), str(path), file_commits=60)
    references, commits, operations = (
        spark.read.parquet(str(path / name)) for name in ("references", "commits", "operations")
    )
    with morag.open(source, SMALL) as repo:
        expected = {(r.name, r.type, r.hash) for r in repo.references.list()}
        log = list(repo.history.log("main", with_operations=True))
    assert {(row.name, row.type, row.hash) for row in references.collect()} == expected
    by_hash = {row.hash: row for row in commits.collect()}
    assert len(by_hash) == report.commits
    changed: dict[str, list[tuple[str, ...]]] = {}
    for row in operations.orderBy("hash", "key").collect():
        changed.setdefault(row.hash, []).append((row.operation, *row.key))
        if row.operation == "PUT":
            assert json.loads(row.content)["id"] == row.content_id
    for entry in log:
        assert entry.operations is not None
        assert entry.meta.hash is not None
        row = by_hash[entry.meta.hash]
        assert (row.message, tuple(row.parents)) == (entry.meta.message, entry.meta.parents)
        found = sorted(changed.get(entry.meta.hash, []))
        assert row.operations == len(found)
        assert found == sorted(
            (type(operation).__name__.upper(), *operation.key.elements)
            for operation in entry.operations
        )


def test_only_chosen_references_are_exported(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    path = tmp_path / "files"
    report = export_repository(spark, Origin(store=source), str(path), references=["main"])
    assert report.references == 1
    with morag.open(source, SMALL) as repo:
        assert report.commits >= len(list(repo.history.log("main")))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["export", "{}/new.zip", "--store", "{store}"], 2, "name a directory"),
        (["export", "{}/new", "--uri", "http://127.0.0.1:1"], 2, "no server exposes"),
        (["import", "{}/absent", "--store", "{store}"], 3, "There is no export"),
        (["import", "{exported}", "--store", "{store}", "--erase"], 2, "--confirm store"),
        (["import", "{exported}", "--store", "{store}"], 100, "has this repository already"),
        (["export", "{}/new", "--store", "sqlite:{}/empty"], 4, "no such repository"),
    ],
)
def test_commands_refuse(
    spark: SparkSession,
    source: str,
    exported: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    store = source.partition("?")[0]
    with closing(open_backend(f"sqlite:{tmp_path}/empty")):
        pass
    given = [text.format(tmp_path, store=store, exported=exported) for text in arguments]
    assert main(["spark", *given, "--quiet"]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new" / METADATA).exists()


def test_a_file_that_executors_find_cut_has_the_exit_code_of_damage(
    spark: SparkSession, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(exported, tmp_path / "cut")
    file = tmp_path / "cut" / "commits-00000001"
    file.write_bytes(file.read_bytes()[:-1])
    store = f"sqlite:{tmp_path / 'store'}"
    assert main(["spark", "import", str(tmp_path / "cut"), "--store", store, "--quiet"]) == 3
    error = capsys.readouterr().err
    assert "is cut short" in error
    assert "\tat " not in error


def test_commands_export_and_import(
    spark: SparkSession,
    source: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, store = str(tmp_path / "files"), f"sqlite:{tmp_path / 'copy'}"
    assert main(["spark", "export", path, "--store", source, "--quiet"]) == 0
    assert f"exported to {path}" in capsys.readouterr().out
    assert main(["spark", "import", path, "--store", store, "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["commits"] >= _COMMITS
    assert_same_repository(store, source)

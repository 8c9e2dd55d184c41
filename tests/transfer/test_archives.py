"""Export files that are damaged, incomplete or hostile are refused, and change nothing."""

from __future__ import annotations

import zipfile
from contextlib import nullcontext as nothing
from errno import ENOSPC
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from morag.backend.memory import MemoryBackend
from morag.errors import ArchiveInvalid, BadRequest
from morag.format.export_messages import (
    EXPORT_META,
    EXPORTED_COMMIT,
    EXPORTED_REF,
    RELATED_OBJ,
    ExportedCommit,
    ExportedOperation,
    ExportedRef,
    ExportMeta,
    RelatedObj,
    sized,
)
from morag.format.ids import NO_ANCESTOR
from morag.format.records import ObjId
from morag.versions.repository import Repository
from morag.versions.transfer.archive import ArchiveReader
from morag.versions.transfer.archive_writing import ZipWriter, new_archive
from morag.versions.transfer.dry_run import rehearse
from morag.versions.transfer.extra_file import ExtraCommit, extra_line
from morag.versions.transfer.sources import ArchiveSource
from morag.versions.world import World
from tests.safety.full_repository import SMALL, fill
from tests.transfer.copies import assert_same, export_to, import_from

if TYPE_CHECKING:
    from pathlib import Path

FIRST = ObjId(b"\1" * 32)
SECOND = ObjId(b"\2" * 32)
TABLE = b'{"type":"UDF","id":"1b0e2c44-5c9c-4a44-bd7e-3f0b5a3f4b7c"}'
PUT = ExportedOperation(0, ("M\0t\0C",), None, 5, TABLE)
COMMIT = ExportedCommit(id=FIRST, seq=1, operations=(PUT,), created_micros=1, message="one")
MAIN = ExportedRef("refs/heads/main", FIRST, None, 1)


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """A good export."""
    backend = MemoryBackend()
    fill(Repository(backend, SMALL, World()))
    export_to(tmp_path / "files", backend, SMALL)
    return tmp_path / "files"


def write(path: Path, **parts: Any) -> Path:
    """An export that has no mistakes but those in `parts`."""
    commits = parts.get("commits", [COMMIT])
    references = parts.get("references", [MAIN])
    objects = parts.get("objects", [])
    path.mkdir()
    (path / "commits-00000001").write_bytes(
        b"".join(sized(EXPORTED_COMMIT.encode(each)) for each in commits)
    )
    (path / "named-refs-00000001").write_bytes(
        b"".join(sized(EXPORTED_REF.encode(each)) for each in references)
    )
    (path / "custom-00000001").write_bytes(
        b"".join(sized(RELATED_OBJ.encode(each)) for each in objects)
    )
    (path / "repository-description").write_bytes(b"")
    if (extra := parts.get("extra")) is not None:
        (path / "morag-extra").write_bytes(extra)
    meta = ExportMeta(
        version=3,
        reference_count=len(references),
        commit_count=len(commits),
        reference_files=("named-refs-00000001",),
        commit_files=("commits-00000001",),
        generic_count=len(objects),
        generic_files=("custom-00000001",),
    )
    (path / "export-metadata").write_bytes(
        EXPORT_META.encode(replace(meta, **parts.get("meta", {})))
    )
    return path


def refused(path: Path, match: str) -> None:
    with pytest.raises(BadRequest, match=match):
        import_from(path, MemoryBackend(), SMALL)


def test_a_good_export_is_imported(tmp_path: Path) -> None:
    backend = MemoryBackend()
    report = import_from(write(tmp_path / "good"), backend)
    assert (report.commits, report.references, report.unfit) == (1, 1, 1)
    with Repository(backend, SMALL, World()) as repo:
        assert [entry.meta.message for entry in repo.history.log("main")] == ["one"]


@pytest.mark.parametrize(
    "name",
    ["../outside", "/etc/passwd", "a/b", "..", ".", "", "a\\b", "a\0b", ".hidden", "x" * 300],
)
def test_names_that_could_lead_out_of_an_export_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").write_bytes(sized(EXPORTED_COMMIT.encode(COMMIT)))
    path = write(tmp_path / "files", meta={"commit_files": (name,)})
    refused(path, "is not the name of an export file")


def test_a_file_that_is_not_listed_is_not_opened(export: Path, tmp_path: Path) -> None:
    (export / "commits-99999999").write_bytes(b"\xff" * 100)
    import_from(export, MemoryBackend(), SMALL)


@pytest.mark.parametrize("version", [0, 4, -1])
def test_unknown_versions_are_refused(tmp_path: Path, version: int) -> None:
    path = write(tmp_path / "files", meta={"version": version})
    refused(path, "known are 1, 2 and 3")


def test_what_is_no_export_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "has no file 'export-metadata'")
    refused(tmp_path / "nothing", "There is no export")
    (tmp_path / "text.zip").write_text("not a ZIP file")
    refused(tmp_path / "text.zip", "is damaged")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "export-metadata").write_bytes(b"\xff\xff")
    refused(tmp_path / "files", "is not readable")


@pytest.mark.parametrize(
    "name", ["commits-00000001", "named-refs-00000001", "repository-description"]
)
def test_a_missing_file_is_reported(export: Path, name: str) -> None:
    (export / name).unlink()
    refused(export, "a part of the export is missing")


@pytest.mark.parametrize("name", ["commits-00000001", "named-refs-00000001", "custom-00000001"])
def test_a_cut_file_is_reported_wherever_it_is_cut(export: Path, name: str) -> None:
    whole = (export / name).read_bytes()
    for size in (0, 1, len(whole) // 3, len(whole) // 2, len(whole) - 1):
        (export / name).write_bytes(whole[:size])
        refused(export, "cut short|a part of the export is missing")


def test_too_many_messages_are_reported(export: Path) -> None:
    with (export / "custom-00000001").open("ab") as file:
        file.write(sized(b""))
    refused(export, "custom ones|a part of the export is missing")


@pytest.mark.parametrize(
    ("commit", "match"),
    [
        (replace(COMMIT, id=b"short"), "is not the id of a commit"),
        (replace(COMMIT, parent=b"short"), "is not the id of a commit"),
        (replace(COMMIT, merge_parents=(b"",)), "is not the id of a commit"),
        (replace(COMMIT, id=NO_ANCESTOR), "stands for no commit"),
        (replace(COMMIT, seq=0), "has the number 0"),
        (replace(COMMIT, parent=SECOND, seq=2), "is not in the export"),
        (replace(COMMIT, merge_parents=(SECOND,)), "which was merged, is not in the export"),
        (replace(COMMIT, operations=(replace(PUT, kind=2),)), "unknown kind 2"),
        (replace(COMMIT, operations=(replace(PUT, key=()),)), "key of 0 texts"),
        (replace(COMMIT, operations=(replace(PUT, key=("",)),)), "bad key"),
        (replace(COMMIT, operations=(replace(PUT, key=("M\0\0C",)),)), "bad key"),
        (replace(COMMIT, operations=(replace(PUT, value=None),)), "not readable"),
        (replace(COMMIT, operations=(replace(PUT, value=b"[]"),)), "not readable"),
        (replace(COMMIT, operations=(replace(PUT, value=b'{"type":"UDF"}'),)), "without an id"),
    ],
)
def test_bad_commits_are_refused(tmp_path: Path, commit: ExportedCommit, match: str) -> None:
    path = write(
        tmp_path / "files", commits=[commit], references=[replace(MAIN, pointer=NO_ANCESTOR)]
    )
    refused(path, match)


def test_a_commit_whose_number_does_not_follow_its_parent_is_refused(tmp_path: Path) -> None:
    child = replace(COMMIT, id=SECOND, parent=FIRST, seq=3)
    refused(write(tmp_path / "files", commits=[COMMIT, child]), "its parent has 1")


@pytest.mark.parametrize(
    ("ref", "match"),
    [
        (replace(MAIN, pointer=SECOND), "which the export does not have"),
        (replace(MAIN, pointer=b""), "no readable pointer"),
        (replace(MAIN, name="int/refs"), "bad name"),
        (replace(MAIN, name=""), "bad name"),
    ],
)
def test_bad_references_are_refused(tmp_path: Path, ref: ExportedRef, match: str) -> None:
    refused(write(tmp_path / "files", references=[ref]), match)


def test_two_references_of_one_name_are_refused(tmp_path: Path) -> None:
    refused(write(tmp_path / "files", references=[MAIN, MAIN]), "same name")


@pytest.mark.parametrize(
    ("related", "match"),
    [
        (RelatedObj(id=FIRST, type="u", data=b"x", space="content-id"), "another id"),
        (RelatedObj(id=FIRST, type="c", data=b"x", encoding=1), "custom"),
        (RelatedObj(id=FIRST, type="c-s", data=b"x"), "unknown encoding"),
        (RelatedObj(id=FIRST, type="c-s", encoding=1, compression="?"), "unknown compression"),
    ],
)
def test_bad_objects_are_refused(tmp_path: Path, related: RelatedObj, match: str) -> None:
    refused(write(tmp_path / "files", objects=[related]), match)


def test_custom_objects_are_carried_as_they_are(tmp_path: Path) -> None:
    snapshot = RelatedObj(
        id=ObjId(b"any id"), type="c-s", data=b"\xff", version="v1", encoding=1, compression="G"
    )
    backend = MemoryBackend()
    import_from(write(tmp_path / "files", objects=[snapshot]), backend)
    export_to(tmp_path / "again", backend)
    with ArchiveReader(tmp_path / "again") as archive:
        assert snapshot in list(ArchiveSource(archive).objects())


@pytest.mark.parametrize(
    ("extra", "match"),
    [
        (b"{", "not readable"),
        (b'{"type":"new"}', "a newer Morag"),
        (b'{"type":"header","version":2}', "a newer Morag"),
        (b'{"type":"object","id":"AAAA","kind":"s","data":"AAAA"}', "damaged object"),
        (b'{"type":"commit","message":"////"}', "not readable"),
        (b'{"type":"move","key":"AAAA","data":"AAAA"}', "damaged line"),
    ],
)
def test_bad_extras_are_refused(tmp_path: Path, extra: bytes, match: str) -> None:
    refused(write(tmp_path / "files", extra=extra), match)


@pytest.mark.parametrize(
    ("commit", "match"),
    [
        ({"parent": SECOND}, "is not in the export"),
        ({"operations": (ExportedOperation(0, ("k",), None, 300, SECOND),)}, "payload 300"),
        ({"operations": (ExportedOperation(1, ("k",), None, -1),)}, "payload -1"),
        ({"operations": (ExportedOperation(0, ("k",), None, 0, b"short"),)}, "no id"),
        ({"operations": (ExportedOperation(2, ("k",)),)}, "unknown kind 2"),
    ],
)
def test_bad_commits_of_configurations_are_refused(
    tmp_path: Path, commit: dict[str, Any], match: str
) -> None:
    bad = replace(ExportedCommit(id=ObjId(b"\3" * 32), seq=1), **commit)
    extra = extra_line(ExtraCommit(EXPORTED_COMMIT.encode(bad)))
    refused(write(tmp_path / "files", extra=extra), match)


def test_a_zip_file_with_one_name_twice_is_refused(export: Path, tmp_path: Path) -> None:
    path = tmp_path / "twice.zip"
    with zipfile.ZipFile(path, "w") as target:
        for name in ("export-metadata", "export-metadata"):
            with pytest.warns(UserWarning) if name in target.namelist() else nothing():
                target.writestr(name, (export / name).read_bytes())
    refused(path, "several entries of the same name")


def test_a_zip_file_with_a_damaged_entry_is_refused(tmp_path: Path, export: Path) -> None:
    path = tmp_path / "damaged.zip"
    with zipfile.ZipFile(path, "w") as target:
        for file in export.iterdir():
            target.writestr(file.name, file.read_bytes())
    with zipfile.ZipFile(path) as source:
        offset = source.getinfo("commits-00000001").header_offset
    content = bytearray(path.read_bytes())
    content[offset + 60] ^= 1
    path.write_bytes(content)
    refused(path, "damaged|not readable|not the id|cut short|bad|unknown|does not|not in the")


def test_a_zip_bomb_takes_no_memory(tmp_path: Path) -> None:
    """A gigabyte of zeros would be a billion empty messages; the first is refused."""
    path = tmp_path / "bomb.zip"
    meta = ExportMeta(
        version=3, commit_count=1, commit_files=("commits-00000001",), nessie_version="0.99.0"
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("export-metadata", EXPORT_META.encode(meta))
        target.writestr("repository-description", b"")
        with target.open("commits-00000001", "w", force_zip64=True) as entry:
            for _ in range(64):
                entry.write(bytes(1 << 20))
    refused(path, "is not the id of a commit")
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target,
        target.open("export-metadata", "w", force_zip64=True) as entry,
    ):
        for _ in range(65):
            entry.write(bytes(1 << 20))
    refused(path, "is too large")


def test_a_dry_run_finds_what_an_import_would_refuse(tmp_path: Path, export: Path) -> None:
    with ArchiveReader(export) as archive:
        report = rehearse(ArchiveSource(archive))
    assert (report.references, report.commits) == (5, archive.meta.commit_count)
    lost = write(tmp_path / "lost", commits=[replace(COMMIT, parent=SECOND, seq=2)])
    with ArchiveReader(lost) as archive, pytest.raises(ArchiveInvalid, match="is not in the"):
        rehearse(ArchiveSource(archive))
    away = write(tmp_path / "away", references=[replace(MAIN, pointer=SECOND)])
    with ArchiveReader(away) as archive, pytest.raises(ArchiveInvalid, match="does not have"):
        rehearse(ArchiveSource(archive))


def test_an_export_never_overwrites_anything(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "old.zip").touch()
    (tmp_path / "new.zip.part").touch()
    for name, match in (("full", "has files in it"), ("old.zip", "exists"), ("new.zip", "not end")):
        with pytest.raises(BadRequest, match=match):
            new_archive(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "new.zip.part", "old.zip"]


def test_an_export_that_fails_leaves_no_zip_file(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_archive(tmp_path / "new.zip") as archive:
        archive.write("morag-extra", b"x")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


class FullDisk(BytesIO):
    def write(self, data: object) -> int:
        raise OSError(ENOSPC, "No space left on device")


def test_a_full_disk_is_reported_and_leaves_no_zip_file(tmp_path: Path) -> None:
    archive = ZipWriter(tmp_path / "a.zip")
    archive._zip.fp = FullDisk()
    with pytest.raises(BadRequest, match="No space"), archive:
        archive.write("commits-00000001", b"x")
    assert list(tmp_path.iterdir()) == []


def test_entries_of_zip_files_are_large_enough_for_zip64(tmp_path: Path, export: Path) -> None:
    """Other tools read them, too."""
    backend = MemoryBackend()
    import_from(export, backend, SMALL)
    export_to(tmp_path / "files.zip", backend, SMALL)
    with zipfile.ZipFile(tmp_path / "files.zip") as archive:
        assert archive.testzip() is None
        assert archive.namelist()[-1] == "export-metadata"
        archive.extractall(tmp_path / "extracted")
    copy = MemoryBackend()
    import_from(tmp_path / "extracted", copy, SMALL)
    assert_same(Repository(backend, SMALL, World()), Repository(copy, SMALL, World()))

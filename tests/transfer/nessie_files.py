"""Writes export files in the shapes that Nessie's tool writes them: newest first, versions 1 to 3.

The commits come from an export of Morag, whose messages are written again in another order and
form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import json
from msgspec.structs import replace

from morag.format.commit_headers import meta_of
from morag.format.export_messages import (
    EXPORTED_COMMIT,
    EXPORTED_REF,
    NAMED_REFERENCE,
    ExportedRef,
    ExportMeta,
    NamedReference,
)
from morag.format.ids import NO_ANCESTOR
from morag.format.objects import Commit
from morag.format.records import ObjId
from morag.model.names import split_full_name
from morag.versions.transfer.archive import ArchiveReader
from morag.versions.transfer.archive_writing import new_archive
from morag.versions.transfer.file_names import (
    COMMITS,
    DESCRIPTION,
    GENERIC,
    HEADS_AND_FORKS,
    REFERENCES,
)

if TYPE_CHECKING:
    from pathlib import Path

    from morag.format.export_messages import ExportedCommit

_COPIED: Final = (HEADS_AND_FORKS, DESCRIPTION)


def rewrite(export: Path, to: Path, *, version: int, max_file_bytes: int | None = None) -> None:
    """The same repository in files of this version, newest first and without `morag-extra`."""
    with (
        ArchiveReader(export) as source,
        new_archive(to, max_file_bytes=max_file_bytes) as target,
    ):
        commits = [
            EXPORTED_COMMIT.decode(message)
            for name in source.meta.commit_files
            for _, message in source.messages(name)
        ]
        written = target.data_files(COMMITS)
        for commit in reversed(commits):
            shaped = _as_version_1(commit) if version == 1 else _as_nessie(commit)
            written.add(EXPORTED_COMMIT.encode(shaped))
        written.close()
        references = target.data_files(REFERENCES)
        for name in source.meta.reference_files:
            for _, message in source.messages(name):
                references.add(_reference(EXPORTED_REF.decode(message), version))
        references.close()
        generic = target.data_files(GENERIC)
        if version == 3:
            for name in source.meta.generic_files:
                for _, message in source.messages(name):
                    generic.add(message)
        generic.close()
        for name in _COPIED if version > 1 else _COPIED[:1]:
            with source.open(name) as file:
                target.write(name, file.read())
        target.finish(
            ExportMeta(
                created_millis=source.meta.created_millis,
                version=version,
                reference_count=references.count,
                commit_count=written.count,
                reference_files=tuple(references.names),
                commit_files=tuple(written.names),
                nessie_version="0.99.0",
                generic_count=generic.count if version == 3 else None,
                generic_files=tuple(generic.names),
            )
        )


def _as_nessie(commit: ExportedCommit) -> ExportedCommit:
    """Without the content ids of deletes."""
    operations = (
        replace(operation, content_id=None) if operation.value is None else operation
        for operation in commit.operations
    )
    return replace(commit, operations=tuple(operations))


def _as_version_1(commit: ExportedCommit) -> ExportedCommit:
    """With the metadata as JSON of the REST API, and with keys as lists of elements."""
    stored = Commit(
        id=commit.id,
        created_micros=0,
        seq=1,
        tail=(NO_ANCESTOR,),
        headers=commit.headers,
        message=commit.message,
        incremental=b"",
    )
    meta = replace(meta_of(stored), hash=None, parents=())
    operations = (
        replace(operation, key=tuple(operation.key[0][2:-2].split("\x01")))
        for operation in _as_nessie(commit).operations
    )
    return replace(
        commit,
        metadata=json.encode(meta),
        message="",
        headers=(),
        operations=tuple(operations),
    )


def _reference(ref: ExportedRef, version: int) -> bytes:
    if version == 3:
        return EXPORTED_REF.encode(ref)
    if version == 2:
        return EXPORTED_REF.encode(replace(ref, created_micros=None))
    kind, name = split_full_name(ref.name) or ("", "")
    return NAMED_REFERENCE.encode(NamedReference(int(kind == "TAG"), name, ObjId(ref.pointer)))

"""Writes an export of many commits in seconds, without a store to export."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from morag.format.export_messages import (
    EXPORTED_COMMIT,
    EXPORTED_DESCRIPTION,
    EXPORTED_REF,
    ExportedCommit,
    ExportedDescription,
    ExportedOperation,
    ExportedRef,
    ExportMeta,
    ExportVersion,
    OperationKind,
)
from morag.format.ids import NO_ANCESTOR
from morag.format.records import ObjId
from morag.model.content import IcebergTable
from morag.versions.transfer import file_names
from morag.versions.transfer.archive_writing import new_archive

if TYPE_CHECKING:
    from pathlib import Path


def write_archive(path: Path, commits: int, keys: int) -> None:
    """One branch, whose commits put one of the keys each. Ids are numbered, so they do not fit."""
    with new_archive(path) as archive:
        files = archive.data_files(file_names.COMMITS)
        parent = NO_ANCESTOR
        for seq in range(1, commits + 1):
            number = seq % keys
            content_id = f"00000000-0000-0000-0000-{number:012x}"
            table = IcebergTable(
                id=content_id,
                metadata_location=f"s3://bucket/warehouse/table_{number}/{seq:020}.metadata.json",
                snapshot_id=seq,
                schema_id=0,
                spec_id=0,
                sort_order_id=0,
            )
            put = ExportedOperation(
                OperationKind.PUT,
                (f"M\0table_{number}\0C",),
                content_id,
                1,
                msgspec.json.encode(table),
            )
            commit = ExportedCommit(
                id=ObjId(sha256(b"%d" % seq).digest()),
                seq=seq,
                parent=parent,
                operations=(put,),
                created_micros=seq,
                message=f"commit {seq}",
            )
            files.add(EXPORTED_COMMIT.encode(commit))
            parent = commit.id
        files.close()
        references = archive.data_files(file_names.REFERENCES)
        references.add(EXPORTED_REF.encode(ExportedRef("refs/heads/main", parent)))
        references.close()
        description = ExportedDescription(default_branch="main")
        archive.write(file_names.DESCRIPTION, EXPORTED_DESCRIPTION.encode(description))
        archive.finish(
            ExportMeta(
                version=ExportVersion.V3,
                reference_count=1,
                commit_count=commits,
                reference_files=tuple(references.names),
                commit_files=tuple(files.names),
                generic_count=0,
            )
        )

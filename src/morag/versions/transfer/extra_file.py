"""`morag-extra`: what Nessie's messages cannot say, as JSON lines.

It holds the configurations of the repository (commits whose values are not contents), the notes of
tags, and the ref-log. Nessie never opens it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
from msgspec import Struct

from morag.backend.base import LogRow
from morag.errors import ArchiveInvalid, RepositoryCorrupt
from morag.format.export_messages import (
    EXPORTED_COMMIT,
    ExportedCommit,
    ExportedOperation,
    ExportVersion,
)
from morag.format.ids import NO_ANCESTOR, NO_CONTENT_ID, uuid_text
from morag.format.proof import own_operations
from morag.logic.bulk_reads import read_commits
from morag.logic.reflog import move_of
from morag.versions.transfer.imported_commits import read_commit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from morag.format.objects import Commit
    from morag.format.records import ObjId, Ref
    from morag.persist.persist import Persist

_VERSION: Final = 1
_LINES_AT_ONCE: Final = 1000


class ExtraHeader(Struct, frozen=True, tag="header"):
    """The first line."""

    version: int


class ExtraObject(Struct, frozen=True, tag="object"):
    """A STRING or a TAG, as its row."""

    id: bytes
    kind: str
    data: bytes


class ExtraCommit(Struct, frozen=True, tag="commit"):
    """A commit as an `ExportedCommit`, whose values are the ids of objects."""

    message: bytes


class ExtraReference(Struct, frozen=True, tag="reference", rename="camel"):
    """A reference that is neither a branch nor a tag."""

    name: str
    pointer: bytes
    created_micros: int


class ExtraMove(Struct, frozen=True, tag="move"):
    """A line of the ref-log."""

    key: bytes
    data: bytes


Extra: TypeAlias = ExtraHeader | ExtraObject | ExtraCommit | ExtraReference | ExtraMove

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Extra).decode


def extra_line(extra: Extra) -> bytes:
    return _encode(extra) + b"\n"


def read_extras(lines: Iterator[bytes]) -> Iterator[Extra]:
    """The lines without the header, which is checked."""
    for number, line in enumerate(lines):
        try:
            extra = _decode(line)
        except msgspec.MsgspecError as problem:
            raise ArchiveInvalid(
                f"Line {number + 1} of 'morag-extra' is not readable ({problem}): it is damaged, "
                "or a newer Morag wrote it"
            ) from None
        if isinstance(extra, ExtraHeader):
            if extra.version != _VERSION:
                raise ArchiveInvalid(
                    f"'morag-extra' has version {extra.version}; a newer Morag wrote it"
                )
        else:
            yield extra


def extras_of(
    persist: Persist,
    hidden: Sequence[Ref],
    tags: Sequence[Ref],
    before_nanos: int,
    has_moves_of: Callable[[str], bool] | None,
) -> Iterator[Extra]:
    """All extras of a store, in the order in which they can be imported.

    `hidden` are references whose values are not contents. The ref-log ends at `before_nanos`, and
    has only moves of some references if `has_moves_of` is given.
    """
    yield ExtraHeader(_VERSION)
    for id in dict.fromkeys(ref.extended_info for ref in tags if ref.extended_info is not None):
        # A missing note is left out: Nessie imports references without their notes.
        yield from (ExtraObject(*row) for row in _rows(persist, [id]))
    for ref in hidden:
        yield from _commits(persist, ref.pointer)
        yield ExtraReference(ref.name, ref.pointer, ref.created_micros)
    yield from _moves(persist, before_nanos, has_moves_of)


def read_extra_commit(extra: ExtraCommit) -> ExportedCommit:
    return read_commit(extra.message, ExportVersion.V3)


def _commits(persist: Persist, head: ObjId) -> Iterator[Extra]:
    """The history of a hidden reference, oldest first. It is short: one commit per change."""
    ids: list[ObjId] = []
    at = head
    while at != NO_ANCESTOR:
        (commit,) = read_commits(persist, [at])
        ids.append(at)
        at = commit.parent
    for id in reversed(ids):
        (commit,) = read_commits(persist, [id])
        exported = _exported(commit)
        values = [op.value for op in exported.operations if op.value]
        yield from (ExtraObject(*row) for row in _rows(persist, values))
        yield ExtraCommit(EXPORTED_COMMIT.encode(exported))


def _exported(commit: Commit) -> ExportedCommit:
    own, _ = own_operations(commit)
    operations = []
    for key, op in own:
        is_put, content_id = op[:1] == b"A", op[-16:]
        operations.append(
            ExportedOperation(
                kind=int(not is_put),
                key=(key.decode(),),
                content_id=None if content_id == NO_CONTENT_ID else uuid_text(content_id),
                payload=op[1],
                value=op[3:-16] if is_put else None,
            )
        )
    return ExportedCommit(
        id=commit.id,
        seq=commit.seq,
        parent=commit.parent,
        merge_parents=commit.merge_parents,
        operations=tuple(operations),
        created_micros=commit.created_micros,
        message=commit.message,
        headers=commit.headers,
    )


def _rows(persist: Persist, ids: Sequence[bytes]) -> list[tuple[bytes, str, bytes]]:
    rows = persist.find(ids)  # type: ignore[arg-type]
    return [(row.id, row.kind, row.data) for row in rows.values()]


def _moves(
    persist: Persist, before_nanos: int, has_moves_of: Callable[[str], bool] | None
) -> Iterator[ExtraMove]:
    """Lines of the ref-log, newest first."""
    before = before_nanos.to_bytes(8, "big")
    while rows := persist.read_log(before, _LINES_AT_ONCE):
        for row in rows:
            if has_moves_of is None or has_moves_of(move_of(row).name):
                yield ExtraMove(row.key, row.data)
        before = rows[-1].key


def log_rows(moves: Sequence[ExtraMove]) -> list[LogRow]:
    """Lines of the ref-log, which are checked."""
    rows = [LogRow(move.key, move.data) for move in moves]
    try:
        for row in rows:
            move_of(row)
    except RepositoryCorrupt as damage:
        raise ArchiveInvalid(
            f"The export has a damaged line of the ref-log ({damage}); to import everything but "
            "configurations, notes of tags and the ref-log, remove the file 'morag-extra'"
        ) from None
    return rows

"""The Parquet files of commits and operations, as executors write them."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import uuid4

from pyarrow.parquet import ParquetWriter
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from morag.format.commit_headers import meta_of
from morag.format.content_rows import content_of_row
from morag.format.ids import NO_CONTENT_ID, uuid_text
from morag.format.index_entries import ADD, content_id_of, payload_of, value_of
from morag.format.key_order import key_from_utf8
from morag.format.proof import own_operations
from morag.index.keys import content_path, key_text
from morag.logic.bulk_reads import read_commits
from morag.model.content import TYPE_NAMES
from morag.persist.persist import ObjectMissing
from morag.spark.source.arrow_batches import Batches, content_columns, key_columns
from morag.spark.source.log import commit_columns
from morag.spark.source.schemas import COMMIT, CONTENT, KEY
from morag.spark.transfer.export_files import WORK, WrittenCommits, joints_of
from morag.spark.transfer.history_order import packed, unpacked
from morag.spark.transfer.stores import opened_persist
from morag.versions.transfer.file_names import file_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyarrow import RecordBatch

    from morag.format.objects import Commit
    from morag.format.records import ObjId
    from morag.model.content import Content
    from morag.persist.persist import Persist
    from morag.spark.opening import Origin
    from morag.spark.source.arrow_batches import ColumnBuilders
    from morag.spark.transfer.export_files import CommitFile

_AT_ONCE: Final = 500


def _schema(columns: dict[str, object]) -> StructType:
    return StructType([StructField(name, type) for name, type in columns.items()])  # type: ignore[arg-type]


TABLES: Final = {
    "commits": _schema({"seq": LongType(), **COMMIT, "operations": IntegerType()}),
    "operations": _schema({"hash": COMMIT["hash"], "seq": LongType(), "operation": COMMIT["hash"],
                           **KEY, **CONTENT}),
}  # fmt: skip
"""The columns of commits and operations are those of the table `log` of the format `morag`."""

_Operation: TypeAlias = "tuple[Commit, bytes, bytes, Content | None]"
"""A commit, a key as UTF-8, the entry of the index and the content that it put."""


def write_tables(
    origin: Origin, directory: str, files: Iterable[CommitFile]
) -> Iterator[WrittenCommits]:
    with opened_persist(origin) as persist:
        for file in files:
            yield _write(persist, Path(directory), file)


@contextmanager
def parquet_file(
    directory: Path, table: str, number: int, schema: StructType
) -> Iterator[Callable[[RecordBatch], None]]:
    """A file of a table, which has its name when it is complete."""
    name = f"part-{number:08d}.parquet"
    temporary = directory / WORK / uuid4().hex
    with file_problems(directory):
        with ParquetWriter(temporary, Batches(schema).schema, compression="zstd") as writer:
            yield writer.write_batch
        temporary.replace(directory / table / name)


def _write(persist: Persist, directory: Path, file: CommitFile) -> WrittenCommits:
    ids = unpacked(file.ids)
    merge_parents: dict[ObjId, None] = {}
    joints: list[ObjId] = []
    before: ObjId | None = None
    commit_batches, operation_batches = (Batches(schema) for schema in TABLES.values())
    with (
        parquet_file(directory, "commits", file.number, TABLES["commits"]) as add_commits,
        parquet_file(directory, "operations", file.number, TABLES["operations"]) as add_operations,
    ):
        for at in range(0, len(ids), _AT_ONCE):
            commits = read_commits(persist, ids[at : at + _AT_ONCE])
            own = [own_operations(commit)[0] for commit in commits]
            rows = _with_contents(persist, commits, own)
            counts = list(map(len, own))
            add_commits(commit_batches.batch(len(commits), _commits(commits, counts)))
            add_operations(operation_batches.batch(len(rows), _operations(rows)))
            merge_parents.update((id, None) for commit in commits for id in commit.merge_parents)
            joints.extend(joints_of(commits, before))
            before = commits[-1].id
    for id in ids:
        merge_parents.pop(id, None)
    return WrittenCommits(file.number, len(ids), packed(list(merge_parents)), packed(joints))


def _with_contents(
    persist: Persist, commits: Sequence[Commit], own: Sequence[Sequence[tuple[bytes, bytes]]]
) -> list[_Operation]:
    puts = {value_of(op): None for each in own for _, op in each if op[:1] == ADD}
    found = persist.find(list(puts)) if puts else {}
    if len(found) < len(puts):
        raise ObjectMissing([id for id in puts if id not in found])
    contents = {id: content_of_row(row) for id, row in found.items()}
    return [
        (commit, key, op, contents[value_of(op)] if op[:1] == ADD else None)
        for commit, each in zip(commits, own, strict=True)
        for key, op in each
    ]


def _commits(commits: Sequence[Commit], counts: list[int]) -> ColumnBuilders:
    return {
        "seq": lambda: [commit.seq for commit in commits],
        **commit_columns([meta_of(commit) for commit in commits]),
        "operations": lambda: counts,
    }


def _operations(rows: Sequence[_Operation]) -> ColumnBuilders:
    paths = [_path(key) for _, key, _, _ in rows]
    contents = [content for _, _, _, content in rows]
    return {
        "hash": lambda: [commit.id.hex() for commit, _, _, _ in rows],
        "seq": lambda: [commit.seq for commit, _, _, _ in rows],
        "operation": lambda: ["PUT" if op[:1] == ADD else "DELETE" for _, _, op, _ in rows],
        **key_columns(paths),
        **content_columns(contents),
        # Deletes have no content, but the index knows what they removed.
        "content_type": lambda: [TYPE_NAMES.get(payload_of(op)) for _, _, op, _ in rows],
        "content_id": lambda: [
            _content_id(op) if content is None else content.id for _, _, op, content in rows
        ],
    }


def _path(key: bytes) -> str:
    store_key = key_from_utf8(key)
    return content_path(store_key) or key_text(store_key)


def _content_id(op: bytes) -> str | None:
    id = content_id_of(op)
    return None if id == NO_CONTENT_ID else uuid_text(id)
